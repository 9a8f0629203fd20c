"""The deployment record, stored on this computer and in the bucket."""

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.contract.object_names import RECORD
from orchestrator.domain.checksum import Origin, origin_of
from orchestrator.domain.ports import Store, StoredObject
from orchestrator.domain.record import Record
from orchestrator.engine.atomic_files import write_atomically
from orchestrator.engine.rebuild_record import rebuilt
from orchestrator.engine.record_format import decode, encode
from orchestrator.errors import (
    AuthError,
    ConflictError,
    DamagedRecordError,
    DiskError,
    LeaseHeldError,
    NotFoundError,
    PreconditionError,
    TpuctlError,
)

# An earlier holder has one write under way at most; each further one means that it still acts.
CLAIM_TRIES = 3
SPACING = 1.1
"""Least seconds between two writes that can wait: one object takes one a second (docs/facts.md 3.2)."""
SERIALS_A_SECOND = 1000
"""More than a deployment's record is ever written."""
NOT_LOGGED_IN = "TPU-201"


class RecordStore:
    """
    Hold the newest record; save a change before the caller goes on, or with the next one.

    One object takes one change a second, so what belongs together is one write: an intent is saved by
    `update` before the call that it covers; what a call has brought about goes with `update_later`, as a kill right
    after the call would lose it as well.

    The bucket's copy is written with its generation as precondition, so of two controllers one loses
    and says so. Until the bucket exists, the synced local copy stands in for it. *disk* says why the copy
    here is older than the bucket's; it is empty when it is not. *key* proves who has written a record.
    *doubt* says why the bucket's is not believed; until somebody does `believe` it, nothing is written. A
    record is *unproven* that this computer takes as it is, because it has no copy to compare it with.
    """

    def __init__(
        self, path: Path, store: Store, deployment: str, key: bytes = b"",
        now: Callable[[], float] = time.time,
    ) -> None:  # fmt: skip
        self._now = now
        self._path = path
        self._key = key
        self._deployment = deployment
        self._store = store
        self._lock = threading.RLock()
        self._generation: int | None = None
        self._writer = uuid.uuid4().hex
        self._damaged_copy = b""
        self.damaged = ""
        self.doubt = ""
        self.unproven = False
        self.disk = ""
        self.current = self._saved = Record()
        self._written_at = float("-inf")

    def load(self, *, forgiving: bool = False) -> Record:
        """
        Read the bucket's copy, or the one here when the bucket has none or a damaged one.

        Raise TpuctlError when the bucket is out of reach, or a copy is a newer version's or another
        deployment's. When every copy is damaged, what follows from the journal takes their place; `damaged` says
        so. With *forgiving* a bucket out of reach counts as one without a copy: what finds its resources by
        label needs no record.
        """
        try:
            stored = self._stored()
        except TpuctlError:
            if not forgiving:
                raise
            stored = None
        self._generation = stored.generation if stored else None
        here = self._path.read_bytes() if self._path.exists() else None
        local, broken = self._read(here, forgiving=forgiving)
        found, damage = self._read(stored.data if stored else None, forgiving=forgiving)
        self.doubt, self.unproven = "", False
        if found is not None and local is None and here is None and stored is not None:
            self.unproven = origin_of(json.loads(stored.data), self._key) is not Origin.OURS
        if found is not None and local is not None and found.serial < local.serial:
            # The bucket is written first: its copy is older only when somebody has put an old one back.
            damage = f"its serial {found.serial} is older than that of the copy here, {local.serial}"
        elif found is not None and stored is not None:
            self.doubt = self._doubt(stored.data, here if local is not None else None)
        self.damaged = damage or (broken if found is None else "")
        self._damaged_copy = stored.data if stored and damage else b""
        if found is not None and local is not None and self.doubt and forgiving:
            # What is deleted is found by its label; the record only adds where to look.
            zones = dict.fromkeys((*local.zones_used, *found.zones_used, *(s.zone for s in found.spans)))
            self.current, self.damaged, self.doubt = replace(local, zones_used=tuple(zones)), self.doubt, ""
        elif found is not None and not damage:
            self.current = found
        elif local is not None:
            self.current = local
        else:
            self.current = rebuilt(self._store) if self.damaged and stored else Record()
        self._saved = self.current
        return self.current

    def _read(self, data: bytes | None, *, forgiving: bool) -> tuple[Record | None, str]:
        """Return a copy and nothing, or no copy and what is wrong with it."""
        if data is None:
            return None, ""
        try:
            return decode(data, self._deployment), ""
        except DamagedRecordError as error:
            return None, error.message
        except TpuctlError as error:
            if not forgiving:
                raise
            return None, error.message

    def _doubt(self, stored: bytes, here: bytes | None) -> str:
        """Say why the bucket's record may be a forged one: this computer has written it under its key before."""
        if not self._key or here is None or origin_of(json.loads(here), self._key) is not Origin.OURS:
            return ""
        found = origin_of(json.loads(stored), self._key)
        if found is Origin.OURS:
            return ""
        how = "under no key" if found is Origin.UNKEYED else "under another key"
        return f"the record in the bucket was written {how}, and not by this computer"

    def _stored(self) -> StoredObject | None:
        try:
            return self._store.read(RECORD)
        except NotFoundError:
            return None
        except AuthError as error:
            raise bucket_refused(error) from error

    def claim(self, token: int | None, *, over: bool = True) -> None:
        """
        Write the lease's token into the bucket's record: what an earlier holder writes later is refused.

        Only the holder of the lease may call it; a last write of the earlier one in between is read again.
        When the lease was not taken *over*, nobody is left whose write could come late: the token goes with
        the first write, which need not wait for this one then. The record is to be loaded under the lease.
        """
        if token is None:
            return
        # Nobody is left whose write could come late, so the token can wait for the first real write.
        if not over and not self._damaged_copy:
            if self.current.bucket.observed:
                self.update_later(lambda record: replace(record, fence=token))
            return
        if self._damaged_copy:
            self._store.write(f"{RECORD}.damaged-{self._generation}", self._damaged_copy)
            self._damaged_copy = b""
        # The last write of the earlier holder may arrive between our read and our write: read again.
        for attempts_remaining in reversed(range(CLAIM_TRIES)):
            try:
                if self.current.bucket.observed:
                    self.update(lambda record: replace(record, fence=token))
            except LeaseHeldError:
                if not attempts_remaining:
                    raise
                self.load()
            else:
                return

    def believe(self) -> None:
        """Take the bucket's record for what it says: somebody knows who has written it."""
        self.doubt = ""

    @property
    def in_bucket(self) -> bool:
        """Say whether the bucket has a copy."""
        return self._generation is not None

    def update(self, change: Callable[[Record], Record]) -> Record:
        """
        Apply *change* and save the result with all changes that wait, locally and in the bucket, if there is one.

        Raise LeaseHeldError when somebody else wrote the record in between, DiskError when it would be
        written nowhere; *change* is undone then, and what waited before it still waits.
        """
        with self._lock:
            before = self.current
            self.update_later(change)
            try:
                self.flush()
            # A kill too: what was not written must not count in whatever still runs in this process.
            except BaseException:
                self.current = before
                raise
            return self.current

    def update_later(self, change: Callable[[Record], Record]) -> None:
        """Apply *change* and leave it to the next write to save it."""
        if self.doubt:
            raise ConflictError(
                self.doubt, hint="run the same command again at a terminal", changed="nothing was written"
            )
        with self._lock:
            self.current = change(self.current)

    def flush(self) -> None:
        """Save the changes that wait, in one write; without any, nothing is written. Errors: as of `update`."""
        with self._lock:
            # Most passes learn nothing: then nothing is written, and the object's rate is left to others.
            if self.current == self._saved:
                return
            # A deployment that is made anew, its bucket too, begins beyond all serials that it had before:
            # else an old copy on another computer would pass for the newer one.
            first = int(self._now() * SERIALS_A_SECOND)
            fresh = replace(self.current, serial=self._saved.serial + 1 if self._saved.serial else first)
            data = encode(fresh, self._deployment, self._writer, self._key)
            if fresh.bucket.observed:
                # First the bucket: what it refuses must not count as newer here.
                self._save_in_bucket(data)
                self._written_at = self._now()
            self._save_here(data)
            self.current = self._saved = fresh

    def rest(self) -> float:
        """Return the seconds after which the bucket takes a write again; 0 when nothing waits for one."""
        since = self._now() - self._written_at
        due = self.current != self._saved and 0 <= since < SPACING
        return SPACING - since if due else 0.0

    def _save_here(self, data: bytes) -> None:
        try:
            write_atomically(self._path, data)
            self.disk = ""
        except DiskError as error:
            if self._generation is None:
                raise
            self.disk = error.message

    def _save_in_bucket(self, data: bytes) -> None:
        try:
            # The generation is what fences off a holder that was paused: its late write meets another one.
            self._generation = self._store.write(RECORD, data, if_generation=self._generation or 0)
        except NotFoundError:
            # The bucket is gone, which the next pass observes; until then the copy here is the record.
            self._generation = None
        except PreconditionError as error:
            found = self._store.read(RECORD)
            if found is None or _writer_of(found.data) != self._writer:
                raise _lost(error) from error
            # Our own write, whose answer was lost.
            self._generation = found.generation
            # The bucket holds an earlier attempt at this very write: what it lacks is written once more.
            self._save_over(data)

    def _save_over(self, data: bytes) -> None:
        try:
            self._generation = self._store.write(RECORD, data, if_generation=self._generation)
        except PreconditionError as error:
            raise _lost(error) from error


def bucket_refused(error: AuthError) -> AuthError:
    """
    Return *error* with the hint that fits a bucket whose objects we may not read.

    Whoever is not logged in has to log in, whosever the bucket is.
    """
    if error.code == NOT_LOGGED_IN:
        return error
    hint = "if the bucket is somebody else's, choose another bucket.name in tpuctl.yaml"
    return AuthError(error.message, hint=hint, changed="nothing was changed")


def _lost(error: PreconditionError) -> LeaseHeldError:
    return LeaseHeldError(
        f"another tpuctl changed this deployment's record at the same time ({error.message})",
        hint="stop one of them; then run the same command again",
        changed="nothing was created or deleted after that",
    )


def _writer_of(data: bytes) -> str:
    try:
        return str(json.loads(data)["writer"])
    except (ValueError, KeyError, TypeError):
        return ""
