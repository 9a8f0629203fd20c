"""Provide the clock by which the agent decides and waits."""

from __future__ import annotations

import threading
import time
from typing import Optional


class MachineClock:
    """The clock of the machine on which the agent runs."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start, without those that the computer was suspended."""
        # A job that slept with its computer has not stalled meanwhile, so it must not be stopped as if it had.
        return time.monotonic()

    def wait(self, seconds: float, wake: Optional[threading.Event] = None) -> None:
        """Wait for *seconds* or for *wake*."""
        (wake or threading.Event()).wait(max(0.0, seconds))


SYSTEM_CLOCK = MachineClock()
"""The clock of everything that is not given another one."""
