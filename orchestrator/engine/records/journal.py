"""Keep the intent journal: an entry before each mutating call and one after it."""

import json
import threading
import uuid
from pathlib import Path
from typing import Any

from orchestrator.clock import Clock
from orchestrator.contract.bucket.object_names import JOURNAL
from orchestrator.domain.checksum import with_checksum
from orchestrator.domain.plan import Change, Verb
from orchestrator.domain.ports import Store
from orchestrator.engine.records.atomic_files import append_synced
from orchestrator.errors import DiskError


class Journal:
    """
    Write intents and results to a synced local file and, once it exists, to the bucket.

    *disk* says why the local file lacks the newest entry; it is empty if the file is up to date.
    """

    def __init__(self, path: Path, store: Store, clock: Clock) -> None:
        self._path = path
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self.disk = ""
        self._unsent: list[tuple[str, bytes]] = []
        self._writer = uuid.uuid4().hex[:8]

    def intend(self, change: Change, *, in_bucket: bool) -> str:
        """
        Record that *change* is about to be made and return the entry's id.

        Raise DiskError if it can be written neither here nor in the bucket. A deletion continues without its
        entry: it can be repeated, and an undeleted machine keeps costing money.
        """
        with self._lock:
            self._count += 1
            entry = f"{self._clock.now() * 1000:.0f}-{self._writer}-{self._count:04d}"
        # A deletion may go without an intent: what is not deleted costs money, deleting twice does not.
        needed = not in_bucket and change.verb is not Verb.DELETE
        self._write(entry, "intent", change.stored(), in_bucket=in_bucket, needed=needed)
        return entry

    def result(self, entry: str, outcome: str, *, in_bucket: bool) -> None:
        """Record the end of the call: `ok`, or the error's code and message."""
        self._write(entry, "result", {"outcome": outcome}, in_bucket=in_bucket, needed=False)

    def _write(self, entry: str, part: str, body: dict[str, Any], *, in_bucket: bool, needed: bool) -> None:
        line = json.dumps(
            with_checksum({"schema": 1, "id": entry, "part": part, "at": self._clock.now(), **body})
        )
        with self._lock:
            # Local file first and synced, then the bucket: the copy there may lag but never lead.
            self._append(line.encode() + b"\n", needed=needed)
            self._unsent.append((f"{JOURNAL}{entry}.{part}.json", line.encode()))
            if in_bucket:
                self._send()

    def _append(self, line: bytes, *, needed: bool) -> None:
        try:
            append_synced(self._path, line)
            self.disk = ""
        except DiskError as error:
            if needed:
                raise
            self.disk = error.message

    def _send(self) -> None:
        """Upload the entries that the bucket lacks, oldest first."""
        while self._unsent:
            # In order, and forgotten only when stored: a record rebuilt from a journal with a gap would be wrong.
            self._store.write(*self._unsent[0])
            self._unsent.pop(0)
