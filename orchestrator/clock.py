"""Provide the clock for everything that waits: the system's, or a virtual one for tests."""

import math
import threading
import time
from collections.abc import Callable
from typing import TypeVar

from orchestrator.contract.backoff import polled
from orchestrator.contract.clock import Clock

__all__ = ["Clock", "SteadyClock", "SystemClock", "VirtualClock", "wait_until"]

T = TypeVar("T")


class SystemClock:
    """The computer's clock."""

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time()

    def monotonic(self) -> float:
        """Return seconds since the boot; on Linux those of a suspended computer count too."""
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Wait for *seconds* or for *wake*."""
        (wake or threading.Event()).wait(max(0.0, seconds))


class SteadyClock:
    """
    A clock that runs on monotonically from a given time, whatever happens to the time of day.

    It starts at the time of *inner*; the lease sets it to the bucket's time. Computers with wrong or jumping
    clocks thus agree on the age of objects.
    """

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self._start = inner.now() - inner.monotonic()

    def set(self, now: float) -> None:
        """Set the time to *now*, in seconds since the epoch."""
        self._start = now - self._inner.monotonic()

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._start + self._inner.monotonic()

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start."""
        return self._inner.monotonic()

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Wait for *seconds* or for *wake*."""
        self._inner.wait(seconds, wake)


class VirtualClock:
    """A clock that jumps instead of waiting."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> float:
        """Return the virtual seconds since the epoch."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that have passed, unaffected by `set_by`."""
        return self._elapsed

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Advance the time by *seconds* and return at once."""
        if wake is None or not wake.is_set():
            self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Advance the time by *seconds*."""
        self._now += seconds
        self._elapsed += seconds

    def set_by(self, seconds: float) -> None:
        """Change the time of day by *seconds* (negative: back) while no time passes."""
        self._now += seconds


def wait_until(
    ask: Callable[[], T], clock: Clock, timeout: float, pause: float, longest: float = math.inf
) -> T:
    """Poll by *clock* for *timeout* seconds (math.inf: until the answer is true); return as `polled` does."""
    return polled(ask, pause, now=clock.monotonic, wait=clock.wait, timeout=timeout, longest=longest)
