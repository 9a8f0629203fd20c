"""Read the job's log from the bucket, across incarnations and workers."""

import re
from collections.abc import Iterator

from orchestrator.contract.limits import MOST_WORKERS
from orchestrator.contract.object_names import LOGS
from orchestrator.domain.ports import Store

PIECE = 8 << 20
"""Most bytes of a log that are read at once."""
LONGEST_LINE = 1 << 20
"""Bytes after which a line that does not end is given out in parts."""
ALL_RESTS = 64 << 20
"""Bytes of all lines together that have not ended; beyond that they are given out in parts."""
_SEGMENT = re.compile(rf"{LOGS}g(\d{{1,9}})/w(\d{{1,4}})/(\d+)\.log", re.ASCII)


class JobLog:
    """Return what is new in the log at each read. Only whole lines are returned."""

    def __init__(self, store: Store, worker: int | None = None) -> None:
        self._store = store
        self._worker = worker
        self._read: dict[str, int] = {}
        self._rest: dict[tuple[int, int], bytes] = {}
        self._held = 0

    def new_lines(self) -> Iterator[tuple[int, int, str]]:
        """Yield (incarnation, worker, line) for everything written since the last call."""
        for (incarnation, worker), name, size in self._segments():
            while self._read.get(name, 0) < size:
                found = self._store.read(name, self._read.get(name, 0), PIECE)
                if found is None or not found.data:
                    break
                self._read[name] = self._read.get(name, 0) + len(found.data)
                before = self._rest.pop((incarnation, worker), b"")
                self._held -= len(before)
                # Split at the last line end: a character of several bytes is never cut before it is decoded.
                whole, _, rest = (before + found.data).rpartition(b"\n")
                # A job may write without ever ending a line: what is held for it has a bound.
                if len(rest) > LONGEST_LINE or self._held + len(rest) > ALL_RESTS:
                    whole, rest = whole + b"\n" * bool(whole) + rest, b""
                if rest:
                    self._rest[incarnation, worker] = rest
                    self._held += len(rest)
                for line in whole.split(b"\n") if whole else []:
                    yield incarnation, worker, line.decode(errors="replace")

    def unfinished(self) -> Iterator[tuple[int, int, str]]:
        """Yield the last lines that no line end has closed: a job that was killed, or draws over its own line."""
        for (incarnation, worker), rest in sorted(self._rest.items()):
            if rest:
                yield incarnation, worker, rest.decode(errors="replace")

    def _segments(self) -> list[tuple[tuple[int, int], str, int]]:
        found = []
        for stored in self._store.list(LOGS):
            match = _SEGMENT.fullmatch(stored.name)
            if match and int(match[2]) < MOST_WORKERS and self._worker in (None, int(match[2])):
                found.append(((int(match[1]), int(match[2])), stored.name, stored.size))
        return sorted(found)
