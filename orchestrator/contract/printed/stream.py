"""The job's output as plain lines: without colours, without bars drawn over bars, each of bounded length."""

from __future__ import annotations

import re
import threading
from typing import List

LONGEST_LINE = 2048
"""Bytes of a line that are looked at. Every pattern of this package is at worst quadratic in a short word."""
BACKLOG = 32 << 10
"""Bytes kept between two looks. A job that prints more is read from its newest lines on."""

_CONTROL = re.compile(rb"\x1b\[[0-9;:?]{0,40}[ -/]{0,4}[@-~]|\x1b[@-_]|\x08")
_ENDS = re.compile(rb"[\r\n]+")


def plain(line: bytes) -> bytes:
    """Return a line without colours, cut, with single spaces."""
    return b" ".join(_CONTROL.sub(b"", line[:LONGEST_LINE]).split())


class Stream:
    """
    Take pieces of output from any thread, give whole lines to one reader.

    A carriage return ends a line too: that is how progress bars draw over themselves.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting = bytearray()

    def feed(self, data: bytes) -> None:
        """Append a piece; the oldest bytes leave when nobody has read for long. Never raises."""
        with self._lock:
            self._waiting += data
            # The newest lines hold the newest step; a job that floods its output must not fill the agent's
            # memory.
            del self._waiting[:-BACKLOG]

    def lines(self, last: bool = False) -> List[bytes]:
        """Return the whole lines since the last call; with *last* also one that no line end has closed."""
        with self._lock:
            waiting = bytes(self._waiting)
            end = len(waiting) if last else max(waiting.rfind(b"\n"), waiting.rfind(b"\r")) + 1
            del self._waiting[:end]
        return [line for line in map(plain, _ENDS.split(waiting[:end])) if line]
