"""
The intent journal: a record before each mutating call and one after it.
"""

import json
import threading
import uuid
from pathlib import Path
from typing import Any

from orchestrator.clock import Clock
from orchestrator.core.names import JOURNAL
from orchestrator.core.plan import Change
from orchestrator.core.seal import sealed
from orchestrator.engine.files import append_synced
from orchestrator.ports import Store


class Journal:
    """
    Write intents and results to a synced local file and, once it exists, to the bucket.
    """

    def __init__(self, path: Path, store: Store, clock: Clock) -> None:
        self._path = path
        self._store = store
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._unsent: list[tuple[str, bytes]] = []
        self._writer = uuid.uuid4().hex[:8]

    def intend(self, change: Change, *, in_bucket: bool) -> str:
        """
        Record that *change* is about to be made and return the entry's id.
        """
        with self._lock:
            self._count += 1
            entry = f"{self._clock.now() * 1000:.0f}-{self._writer}-{self._count:04d}"
        self._write(entry, "intent", change.as_dict(), in_bucket=in_bucket)
        return entry

    def result(self, entry: str, outcome: str, *, in_bucket: bool) -> None:
        """
        Record how the call ended: `ok`, or the error's code and message.
        """
        self._write(entry, "result", {"outcome": outcome}, in_bucket=in_bucket)

    def _write(self, entry: str, part: str, body: dict[str, Any], *, in_bucket: bool) -> None:
        line = json.dumps(sealed({"schema": 1, "id": entry, "part": part, "at": self._clock.now(), **body}))
        with self._lock:
            append_synced(self._path, line.encode() + b"\n")
            self._unsent.append((f"{JOURNAL}{entry}.{part}.json", line.encode()))
            if in_bucket:
                self._send()

    def _send(self) -> None:
        """
        Write to the bucket what it does not have; what is older than the bucket goes there first.
        """
        while self._unsent:
            self._store.write(*self._unsent[0])
            self._unsent.pop(0)
