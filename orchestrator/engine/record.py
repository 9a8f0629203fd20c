"""
The deployment record: the history, kept on this computer and in the bucket.
"""

import json
import threading
import uuid
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from orchestrator.core.history import History
from orchestrator.core.names import RECORD
from orchestrator.core.seal import checksum, sealed_bytes
from orchestrator.engine.files import write_atomically
from orchestrator.engine.rebuild import rebuilt
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
from orchestrator.ports import Store, StoredObject

SCHEMA = 1
CLAIM_TRIES = 3
NOT_LOGGED_IN = "TPU-201"


class Record:
    """
    Hold the newest history and save each change before the caller goes on.

    The bucket's copy is written with its generation as precondition, so of two controllers one loses
    and says so. Until the bucket exists, the synced local copy stands in for it. *disk* says why the copy
    here is older than the bucket's; it is empty when it is not.
    """

    def __init__(self, path: Path, store: Store, deployment: str) -> None:
        self._path = path
        self._deployment = deployment
        self._store = store
        self._lock = threading.RLock()
        self._generation: int | None = None
        self._writer = uuid.uuid4().hex
        self._damaged_copy = b""
        self.damaged = ""
        self.disk = ""
        self.history = History()

    def load(self, *, forgiving: bool = False) -> History:
        """
        Read the bucket's copy, or the one here when the bucket has none or a damaged one.

        Raise TpuctlError when the bucket is out of reach, or a copy is a newer version's or another
        deployment's. When every copy is damaged, what the journal tells takes their place; `damaged` says
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
        copies = [stored.data] if stored else []
        copies += [self._path.read_bytes()] if self._path.exists() else []
        self.history, self.damaged = self._newest(copies, in_bucket=stored is not None)
        self._damaged_copy = copies[0] if stored and self.damaged else b""
        return self.history

    def _newest(self, copies: list[bytes], *, in_bucket: bool) -> tuple[History, str]:
        """
        Return the first copy that is whole, and what was wrong with those before it.
        """
        damage = ""
        for data in copies:
            try:
                return decode(data, self._deployment), damage
            except DamagedRecordError as error:
                damage = damage or error.message
        if not damage:
            return History(), ""
        return rebuilt(self._store) if in_bucket else History(), damage

    def _stored(self) -> StoredObject | None:
        try:
            return self._store.read(RECORD)
        except NotFoundError:
            return None
        except AuthError as error:
            raise bucket_refused(error) from error

    def claim(self, token: int | None) -> None:
        """
        Write the lease's token into the bucket's record: what an earlier holder writes later is refused.

        Only the holder of the lease may call it; a last write of the earlier one in between is read again.
        """
        if token is None:
            return
        if self._damaged_copy:
            self._store.write(f"{RECORD}.damaged-{self._generation}", self._damaged_copy)
            self._damaged_copy = b""
        for tries_left in reversed(range(CLAIM_TRIES)):
            try:
                if self.history.bucket_seen:
                    self.update(lambda h: replace(h, fence=token))
            except LeaseHeldError:
                if not tries_left:
                    raise
                self.load()
            else:
                return

    @property
    def in_bucket(self) -> bool:
        """
        Say whether the bucket has a copy.
        """
        return self._generation is not None

    def update(self, change: Callable[[History], History]) -> History:
        """
        Apply *change* and save the result, locally and, once the bucket was seen, there too.

        Raise LeaseHeldError when somebody else wrote the record in between, DiskError when it would be
        written nowhere.
        """
        with self._lock:
            fresh = change(self.history)
            if fresh == self.history:
                return fresh
            fresh = replace(fresh, serial=self.history.serial + 1)
            data = encode(fresh, self._deployment, self._writer)
            if fresh.bucket_seen:
                # First the bucket: what it refuses must not count as newer here.
                self._save_in_bucket(data)
            self._save_here(data)
            self.history = fresh
            return fresh

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
            self._generation = self._store.write(RECORD, data, if_generation=self._generation or 0)
        except NotFoundError:
            # The bucket is gone, which the next look tells; until then the copy here is the record.
            self._generation = None
        except PreconditionError as error:
            found = self._store.read(RECORD)
            if found is None or _writer_of(found.data) != self._writer:
                raise _lost(error) from error
            # Our own write, whose answer was lost.
            self._generation = found.generation
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
    return AuthError(error.message, hint=hint, unchanged="nothing was changed")


def _lost(error: PreconditionError) -> LeaseHeldError:
    return LeaseHeldError(
        f"another tpuctl changed this deployment's record at the same time ({error.message})",
        hint="stop one of them; then run the same command again",
        unchanged="nothing was created or deleted after that",
    )


def _writer_of(data: bytes) -> str:
    try:
        return str(json.loads(data)["writer"])
    except (ValueError, KeyError, TypeError):
        return ""


def encode(history: History, deployment: str, writer: str = "") -> bytes:
    """
    Return the record as JSON; *writer* names the process that wrote it.
    """
    body: dict[str, Any] = {"schema": SCHEMA, "deployment": deployment, "writer": writer}
    body["history"] = _adapter().dump_python(history, mode="json")
    return sealed_bytes(body)


def decode(data: bytes, deployment: str) -> History:
    """
    Read a record.

    Raise DamagedRecordError when a byte of it is not as it was written, ConflictError when it is another
    deployment's, TpuctlError when a newer version wrote it.
    """
    try:
        body = json.loads(data)
        schema, owner = body["schema"], body["deployment"]
        # The checksum comes first: only a whole record is believed to be of a newer version.
        whole = body.pop("checksum") == checksum(body)
        history: History = _adapter().validate_python(body["history"]) if schema == SCHEMA else History()
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DamagedRecordError(f"the deployment record cannot be read: {error}") from error
    if not whole:
        raise DamagedRecordError("the deployment record is damaged: its checksum does not fit")
    if schema != SCHEMA:
        raise TpuctlError(
            f"the deployment record has schema {schema}, this tpuctl knows {SCHEMA}",
            hint="use the tpuctl that wrote it, or a newer one",
            unchanged="nothing was changed",
        )
    if owner != deployment:
        raise ConflictError(
            f"the bucket belongs to the deployment {owner}, not to {deployment}",
            hint="one bucket serves one deployment: choose another bucket.name in tpuctl.yaml",
            unchanged="nothing was changed",
        )
    return history


@cache
def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(History)
