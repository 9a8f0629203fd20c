"""Split the job's output into plain lines of bounded length, without colours and overdrawn bars."""

from __future__ import annotations

import re
import threading
from typing import List

MAX_LINE = 2048
"""Bytes of a line that are examined. Every pattern of this package is at worst quadratic in a short word."""
BACKLOG = 32 << 10
"""Bytes kept between two reads. Of more output only the newest lines are read."""

_CONTROL = re.compile(rb"\x1b\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|\x1b[@-_]|\x08")
_ENDS = re.compile(rb"[\r\n]+")


def plain(line: bytes) -> bytes:
    """Return a line without colours, cut, with single spaces."""
    return b" ".join(_CONTROL.sub(b"", line[:MAX_LINE]).split())


class Stream:
    """
    Take pieces of output from any thread, and give whole lines to one reader.

    A carriage return ends a line too, because progress bars overdraw themselves with it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = bytearray()

    def feed(self, data: bytes) -> None:
        """Append a piece; without a read the oldest bytes are dropped beyond BACKLOG. Never raise."""
        with self._lock:
            self._waiting += data
            # The newest lines hold the newest step, and a flood of output must not fill the agent's memory.
            del self._waiting[:-BACKLOG]

    def lines(self, last: bool = False) -> List[bytes]:
        """Return the whole lines since the last call; with *last* also one without a line end."""
        with self._lock:
            waiting = bytes(self._waiting)
            end = len(waiting) if last else max(waiting.rfind(b"\n"), waiting.rfind(b"\r")) + 1
            del self._waiting[:end]
        return [line for line in map(plain, _ENDS.split(waiting[:end])) if line]
