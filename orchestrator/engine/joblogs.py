"""
Read the job's log from the bucket, across incarnations and workers.
"""

import re
from collections.abc import Iterator

from orchestrator.core.names import LOGS
from orchestrator.ports import Store

_SEGMENT = re.compile(rf"{LOGS}g(\d+)/w(\d+)/(\d+)\.log$")


class JobLog:
    """
    Return what is new in the log at each read. Only whole lines are returned.
    """

    def __init__(self, store: Store, worker: int | None = None) -> None:
        self._store = store
        self._worker = worker
        self._read: dict[str, int] = {}
        self._rest: dict[tuple[int, int], bytes] = {}

    def new_lines(self) -> Iterator[tuple[int, int, str]]:
        """
        Yield (incarnation, worker, line) for everything written since the last call.
        """
        for (incarnation, worker), name, size in self._segments():
            start = self._read.get(name, 0)
            if size <= start:
                continue
            found = self._store.read(name, start)
            if found is None:
                continue
            self._read[name] = start + len(found.data)
            whole, _, rest = (self._rest.get((incarnation, worker), b"") + found.data).rpartition(b"\n")
            self._rest[incarnation, worker] = rest
            for line in whole.split(b"\n") if whole else []:
                yield incarnation, worker, line.decode(errors="replace")

    def unfinished(self) -> Iterator[tuple[int, int, str]]:
        """
        Yield the last lines that no line end has closed: a job that was killed, or draws over its own line.
        """
        for (incarnation, worker), rest in sorted(self._rest.items()):
            if rest:
                yield incarnation, worker, rest.decode(errors="replace")

    def _segments(self) -> list[tuple[tuple[int, int], str, int]]:
        found = []
        for stored in self._store.list(LOGS):
            match = _SEGMENT.match(stored.name)
            if match and self._worker in (None, int(match[2])):
                found.append(((int(match[1]), int(match[2])), stored.name, stored.size))
        return sorted(found)
