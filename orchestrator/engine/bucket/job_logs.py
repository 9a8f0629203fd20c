"""Read the job's log from the bucket, across incarnations and workers."""

import re
from collections.abc import Iterator

from orchestrator.contract.bucket.limits import MAX_WORKERS
from orchestrator.contract.bucket.object_names import LOGS
from orchestrator.domain.ports import Store

PIECE = 8 << 20
"""Most bytes of a log to read at once."""
MAX_LINE = 1 << 20
"""Bytes after which a line without an end is returned in parts."""
ALL_RESTS = 64 << 20
"""Bytes of all unfinished lines together, beyond which they are returned in parts."""
TAIL = 64 << 10
"""Bytes at the end of a log that are read for its last lines."""
_SEGMENT = re.compile(rf"{LOGS}g(\d{{1,9}})/w(\d{{1,4}})/(\d+)\.log", re.ASCII)


class JobLogReader:
    """
    Return the new whole lines of the log at each read.

    Segments to which nothing was added after *since*, by the bucket's clock, are skipped.
    """

    def __init__(self, store: Store, worker: int | None = None, since: float = 0.0) -> None:
        self._store = store
        self._worker = worker
        self._since = since
        self._read: dict[str, int] = {}
        self._rest: dict[tuple[int, int], bytes] = {}
        self._held = 0

    def new_lines(self) -> Iterator[tuple[int, int, str]]:
        """Yield (incarnation, worker, line) for everything written since the last call."""
        for (incarnation, worker), name, size in log_segments(self._store, self._worker, self._since):
            while self._read.get(name, 0) < size:
                found = self._store.read(name, self._read.get(name, 0), PIECE)
                if found is None or not found.data:
                    break
                self._read[name] = self._read.get(name, 0) + len(found.data)
                before = self._rest.pop((incarnation, worker), b"")
                self._held -= len(before)
                # Split at the last line end before decoding, so that no multi-byte character is cut.
                whole, _, rest = (before + found.data).rpartition(b"\n")
                # Bound the memory: a job may write without ever ending a line.
                if len(rest) > MAX_LINE or self._held + len(rest) > ALL_RESTS:
                    whole, rest = whole + b"\n" * bool(whole) + rest, b""
                if rest:
                    self._rest[incarnation, worker] = rest
                    self._held += len(rest)
                for line in whole.split(b"\n") if whole else []:
                    yield incarnation, worker, line.decode(errors="replace")

    def unfinished(self) -> Iterator[tuple[int, int, str]]:
        """Yield the last lines that have no line end, from a killed job or a progress bar."""
        for (incarnation, worker), rest in sorted(self._rest.items()):
            if rest:
                yield incarnation, worker, rest.decode(errors="replace")


class LogTail:
    """Return the last lines of one worker's log at each read, without reading bytes twice."""

    def __init__(self, store: Store, worker: int, lines: int) -> None:
        self._store = store
        self._worker = worker
        self._lines = lines
        self._name, self._end, self._held = "", 0, b""

    def read(self) -> list[str]:
        """Return the last lines of the newest segment, at most as many as requested, from its last TAIL bytes."""
        segments = log_segments(self._store, self._worker)
        if not segments:
            return []
        _, name, size = segments[-1]
        if name != self._name:
            self._name, self._end, self._held = name, 0, b""
        start = max(self._end, size - TAIL)
        if start < size:
            found = self._store.read(name, start, size - start)
            if found is None:
                return []
            self._held = ((self._held if start == self._end else b"") + found.data)[-TAIL:]
            self._end = start + len(found.data)
        lines = self._held.decode(errors="replace").replace("\r", "\n").splitlines()
        return lines[-self._lines :]


def log_segments(
    store: Store, worker: int | None, since: float = 0.0
) -> list[tuple[tuple[int, int], str, int]]:
    """
    Return ((incarnation, worker), object, size) of each log segment changed after *since*, in order.

    *worker* None means all workers.
    """
    found = []
    for stored in store.list(LOGS):
        match = _SEGMENT.fullmatch(stored.name)
        if match is None or stored.updated < since:
            continue
        if int(match[2]) < MAX_WORKERS and worker in (None, int(match[2])):
            found.append(((int(match[1]), int(match[2])), stored.name, stored.size))
    return sorted(found)
