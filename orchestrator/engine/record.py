"""
The deployment record: the history, kept on this computer and in the bucket.
"""

import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.core.history import History
from orchestrator.core.names import RECORD
from orchestrator.engine.files import write_atomically
from orchestrator.errors import LeaseHeldError, NotFoundError, PreconditionError, TpuctlError
from orchestrator.ports import Store

SCHEMA = 1


class Record:
    """
    Hold the newest history and save each change before the caller goes on.

    The bucket's copy is written with its generation as precondition, so of two controllers one loses
    and says so. Until the bucket exists, the synced local copy stands in for it.
    """

    def __init__(self, path: Path, store: Store) -> None:
        self._path = path
        self._store = store
        self._lock = threading.RLock()
        self._generation: int | None = None
        self._doubtful: bytes | None = None
        self.history = History()

    def load(self) -> History:
        """
        Read both copies and keep the newer one; raise TpuctlError when the bucket cannot be read.
        """
        local = decode(self._path.read_bytes()) if self._path.exists() else History()
        try:
            stored = self._store.read(RECORD)
        except NotFoundError:
            stored = None
        self._generation = stored.generation if stored else None
        remote = decode(stored.data) if stored else History()
        self.history = max(local, remote, key=lambda h: h.serial)
        return self.history

    @property
    def in_bucket(self) -> bool:
        """
        Say whether the bucket has a copy.
        """
        return self._generation is not None

    def update(self, change: Callable[[History], History]) -> History:
        """
        Apply *change* and save the result, locally and, once the bucket was seen, there too.

        Raise LeaseHeldError when somebody else wrote the record in between.
        """
        with self._lock:
            fresh = change(self.history)
            if fresh == self.history:
                return fresh
            fresh = replace(fresh, serial=self.history.serial + 1)
            write_atomically(self._path, encode(fresh))
            if fresh.bucket_seen:
                self._save_in_bucket(fresh)
            self.history = fresh
            return fresh

    def _save_in_bucket(self, fresh: History) -> None:
        data = encode(fresh)
        try:
            self._generation = self._store.write(RECORD, data, if_generation=self._generation or 0)
            self._doubtful = None
        except PreconditionError as error:
            found = self._store.read(RECORD)
            if found is not None and found.data in (data, self._doubtful):
                # Our own write whose answer was lost: take its generation and go on from there.
                self._generation, self._doubtful = found.generation, None
                if found.data != data:
                    self._save_in_bucket(fresh)
                return
            raise LeaseHeldError(
                "another tpuctl changed this deployment's record at the same time",
                hint="stop one of them; then run the same command again",
                unchanged="nothing was created or deleted after that",
            ) from error
        except TpuctlError:
            self._doubtful = data
            raise


def encode(history: History) -> bytes:
    """
    Return the record as JSON.
    """
    body: dict[str, Any] = {"schema": SCHEMA, "history": _adapter().dump_python(history, mode="json")}
    return json.dumps(body, indent=1, sort_keys=True).encode()


def decode(data: bytes) -> History:
    """
    Read a record; raise TpuctlError when it is torn or from a newer version.
    """
    try:
        body = json.loads(data)
        if body["schema"] != SCHEMA:
            raise TpuctlError(
                f"the deployment record has schema {body['schema']}, this tpuctl knows {SCHEMA}",
                hint="use the tpuctl that wrote it, or a newer one",
            )
        history: History = _adapter().validate_python(body["history"])
    except (ValueError, KeyError, TypeError) as error:
        raise TpuctlError(
            f"the deployment record cannot be read: {error}",
            hint="tpuctl down finds all resources by label and needs no record",
            unchanged="nothing was changed",
        ) from error
    return history


def _adapter() -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(History)
