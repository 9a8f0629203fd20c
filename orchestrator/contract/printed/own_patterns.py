"""
The patterns of the deployment file's `job.progress`.

The controller refuses patterns that take long on some line. Python's `re` cannot be stopped once it runs, so
lines are short here, and a pattern that has taken long once is not used again.
"""

from __future__ import annotations

import json
import re
import time
from typing import Callable, Dict, Optional, Pattern

from orchestrator.contract.printed.numbers import count, value

KEYS = ("step", "loss", "rate")
LONGEST_LINE = 512
SLOW = 0.5
"""Seconds after which a pattern is given up."""

_COUNT = re.compile(rb"[\d,]{1,16}\Z")


class Own:
    """
    Find step, loss and rate by patterns with one group each, or with a group of that name.

    *trouble* says why one of them is not used.
    """

    def __init__(self, patterns: Dict[str, Pattern[bytes]], clock: Callable[[], float]) -> None:
        self._patterns = patterns
        self._clock = clock
        self.asks = frozenset(patterns)
        self.step: Optional[int] = None
        self.loss: Optional[float] = None
        self.rate: Optional[float] = None
        self.trouble = ""

    @staticmethod
    def of(text: str, clock: Callable[[], float] = time.perf_counter) -> "Own":
        """Return the patterns of a JSON object. Never raises; what is wrong stands in *trouble*."""
        found: Dict[str, Pattern[bytes]] = {}
        trouble = ""
        try:
            given = json.loads(text)
            for key in KEYS:
                if given.get(key):
                    found[key] = re.compile(given[key].encode())
        except (ValueError, re.error, AttributeError, RecursionError, OverflowError) as error:
            trouble = f"job.progress cannot be used: {error}"
        made = Own(found, clock)
        made.trouble = trouble
        return made

    def read(self, line: bytes) -> None:
        """Learn from one line."""
        for key, pattern in list(self._patterns.items()):
            began = self._clock()
            found = pattern.search(line[:LONGEST_LINE])
            took = self._clock() - began
            if took > SLOW:
                del self._patterns[key]
                self.trouble = f"job.progress.{key} took {took:.1f} s on one line and is not used any more"
            if found is not None:
                text = found[key] if key in pattern.groupindex else found[1 if pattern.groups else 0]
                self._take(key, text or b"")

    def _take(self, key: str, text: bytes) -> None:
        text = text.strip()
        if key == "step" and _COUNT.match(text) and text.strip(b","):
            self.step = min(count(text.replace(b",", b"")), 10**12)
        elif key == "loss" and text:
            self.loss = value(text)
        elif key == "rate" and text and value(text) >= 0:
            self.rate = value(text)
