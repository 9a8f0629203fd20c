"""Store the deployment record on this computer and in the bucket."""

import json
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from orchestrator.contract.bucket.object_names import RECORD
from orchestrator.domain.checksum import Origin, origin_of
from orchestrator.domain.ports import Store, StoredObject
from orchestrator.domain.record import Record
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.engine.records.rebuild_record import rebuilt
from orchestrator.engine.records.record_format import decode, encode
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

# Tries to take the record. An earlier holder has at most one write under way; more mean that it still acts.
TAKE_TRIES = 3
WRITE_INTERVAL = 1.1
"""Shortest time between two deferrable writes in seconds: one object takes one a second (docs/facts.md 3.2)."""
SERIALS_A_SECOND = 1000
"""More serials per second than any deployment's record uses."""
NOT_LOGGED_IN = "TPU-201"


class RecordStore:
    """
    The newest record; a change is saved before the caller continues, or with the next write.

    One object takes one change a second, so changes that belong together are one write: an intent is saved by
    `update` before the call that it covers; the result of a call goes with `update_later`, because a kill
    right after the call would lose it anyway.

    The bucket's copy is written with its generation as precondition, so of two controllers one fails and
    reports it. Until the bucket exists, the synced local copy stands in for it. *disk* says why the local
    copy is older than the bucket's, empty if it is not. *key* signs the record. *doubt* says why the bucket's
    copy is not believed; until `believe` is called, nothing is written. *unproven* marks a record that this
    computer accepts because it has no copy to compare it with.
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
        self._unread: TpuctlError | None = None
        self.damaged = ""
        self.doubt = ""
        self.unproven = False
        self.disk = ""
        self.current = self._saved = Record()
        self._written_at = float("-inf")

    def load(self, *, forgiving: bool = False) -> Record:
        """
        Read the bucket's copy, or the local one if the bucket's is missing or damaged.

        Raise TpuctlError if the bucket does not answer, or if a copy is a newer version's or another
        deployment's. If all copies are damaged, the record is rebuilt from the journal, and `damaged` says
        so. With *forgiving*, a bucket that does not answer counts as one without a copy, which is enough to
        delete by label; `update` reads it before it writes.
        """
        self._unread = None
        try:
            stored = self._stored()
        except TpuctlError as error:
            if not forgiving:
                raise
            stored, self._unread = None, error
        self._generation = stored.generation if stored else None
        here = self._path.read_bytes() if self._path.exists() else None
        local, broken = self._read(here, forgiving=forgiving)
        found, damage = self._read(stored.data if stored else None, forgiving=forgiving)
        self.doubt, self.unproven = "", False
        if found is not None and local is None and here is None and stored is not None:
            self.unproven = origin_of(json.loads(stored.data), self._key) is not Origin.OURS
        if found is not None and local is not None and found.serial < local.serial:
            # The bucket is written first, so its copy can be older only if an old copy was put back.
            damage = f"its serial {found.serial} is older than that of the copy here, {local.serial}"
        elif found is not None and stored is not None:
            self.doubt = self._doubt(stored.data, here if local is not None else None)
        self.damaged = damage or (broken if found is None else "")
        self._damaged_copy = stored.data if stored and damage else b""
        if found is not None and local is not None and self.doubt and forgiving:
            # Deletion goes by label; the doubtful record only adds zones to search.
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
        """Return a copy and an empty text, or None and what is wrong with the copy."""
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
        """Return why the bucket's record may be forged, empty if not: this computer signed its own copy before."""
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

    def take(self, token: int | None, *, over: bool = True) -> None:
        """
        Write the lease's token into the bucket's record, so that later writes of an earlier holder are refused.

        Call it only while holding the lease, after loading the record under it. If an earlier holder writes
        meanwhile, its record is read first. If the lease was not taken *over*, no late write can come, so the
        token waits for the next write. Raise LeaseHeldError after TAKE_TRIES.
        """
        if token is None:
            return
        # The previous holder released the lease, so no late write can come: the token goes with the
        # first real write.
        if not over and not self._damaged_copy:
            if self.current.bucket.observed:
                self.update_later(lambda record: replace(record, fence=token))
            return
        if self._damaged_copy:
            self._store.write(f"{RECORD}.damaged-{self._generation}", self._damaged_copy)
            self._damaged_copy = b""
        # The last write of the earlier holder may arrive between our read and our write; then read again.
        for attempts_remaining in reversed(range(TAKE_TRIES)):
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
        """Accept the bucket's record as genuine, because the user has confirmed it."""
        self.doubt = ""

    @property
    def in_bucket(self) -> bool:
        """Return whether the bucket has a copy."""
        return self._generation is not None

    def update(self, change: Callable[[Record], Record]) -> Record:
        """
        Apply *change* and save the record with all deferred changes, locally and in the bucket if it exists.

        Raise LeaseHeldError if another process wrote the record meanwhile, DiskError if it can be written
        nowhere; *change* is undone then, and deferred changes stay deferred. Raise what the bucket raises if its
        copy is not read yet.
        """
        with self._lock:
            self._read_at_last()
            before = self.current
            self.update_later(change)
            try:
                self.flush()
            # BaseException, so that after Ctrl-C nothing in this process relies on what was not written.
            except BaseException:
                self.current = before
                raise
            return self.current

    def _read_at_last(self) -> None:
        """Read the bucket's copy if `load` could not; what is written without it would replace all it knows."""
        if self._unread is not None:
            self.load(forgiving=True)
            # A bucket that refuses us is perhaps not ours, and has no copy that could be written.
            if self._unread is not None and not isinstance(self._unread, AuthError):
                raise self._unread

    def update_later(self, change: Callable[[Record], Record]) -> None:
        """Apply *change* and let the next write save it. Raise ConflictError while there is a *doubt*."""
        if self.doubt:
            raise ConflictError(
                self.doubt, hint="run the same command again at a terminal", changed="nothing was written"
            )
        with self._lock:
            self.current = change(self.current)

    def flush(self) -> None:
        """Save the deferred changes in one write; do nothing if there are none. Raise what `update` raises."""
        with self._lock:
            # Most passes observe nothing new, and the object takes one write a second only.
            if self.current == self._saved:
                return
            # A recreated deployment starts beyond all earlier serials, or an old copy on another computer would
            # count as newer.
            # But what is written without knowledge of the bucket's copy must never count as newer than that.
            first = 1 if self._unread else int(self._now() * SERIALS_A_SECOND)
            fresh = replace(self.current, serial=self._saved.serial + 1 if self._saved.serial else first)
            data = encode(fresh, self._deployment, self._writer, self._key)
            if fresh.bucket.observed:
                # The bucket first: a record that it refuses must not count as newer here.
                self._save_in_bucket(data)
                self._written_at = self._now()
            self._save_here(data)
            self.current = self._saved = fresh

    def rest(self) -> float:
        """Return the seconds until the bucket may be written again; 0 if nothing is deferred."""
        since = self._now() - self._written_at
        due = self.current != self._saved and 0 <= since < WRITE_INTERVAL
        return WRITE_INTERVAL - since if due else 0.0

    def _save_here(self, data: bytes) -> None:
        try:
            write_private(self._path, data)
            self.disk = ""
        except DiskError as error:
            if self._generation is None:
                raise
            self.disk = error.message

    def _save_in_bucket(self, data: bytes) -> None:
        try:
            # The generation fences a paused holder: its late write fails.
            self._generation = self._store.write(RECORD, data, if_generation=self._generation or 0)
        except NotFoundError:
            # The bucket is deleted, which the next pass observes; until then the local copy is the record.
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
            # Once only: a second conflict means that another process really writes.
            self._generation = self._store.write(RECORD, data, if_generation=self._generation)
        except PreconditionError as error:
            raise _lost(error) from error


def bucket_refused(error: AuthError) -> AuthError:
    """
    Return *error* with the hint for a bucket whose objects we may not read.

    An error because of a missing login stays as it is: the login has to come first.
    """
    if error.code == NOT_LOGGED_IN:
        return error
    hint = "if the bucket belongs to another project, choose another bucket.name in tpuctl.yaml"
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
