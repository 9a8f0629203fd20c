"""One clock for everything that waits: the system's, or one that jumps."""

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Tell the time (seconds since the epoch, UTC) and wait."""

    def now(self) -> float:
        """Return seconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds since some moment; never set back, and going on while the computer sleeps."""

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Return after *seconds*, or earlier when *wake* is set."""


class SystemClock:
    """Use the time of the machine."""

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
    Tell a time that goes on steadily from where it was set, whatever happens to the time of day.

    It starts with the time of *inner*, and is set to the bucket's by the lease: so computers whose clocks
    differ, or jump, agree on how old something is.
    """

    def __init__(self, inner: Clock) -> None:
        self._inner = inner
        self._start = inner.now() - inner.monotonic()

    def set(self, now: float) -> None:
        """Say that it is *now*."""
        self._start = now - self._inner.monotonic()

    def now(self) -> float:
        """Return seconds since the epoch."""
        return self._start + self._inner.monotonic()

    def monotonic(self) -> float:
        """Return seconds since some moment."""
        return self._inner.monotonic()

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Wait for *seconds* or for *wake*."""
        self._inner.wait(seconds, wake)


class VirtualClock:
    """Jump instead of waiting, so that a week passes in a moment."""

    def __init__(self, start: float = 1_800_000_000.0) -> None:
        self._now = start
        self._elapsed = 0.0

    def now(self) -> float:
        """Return the virtual seconds since the epoch."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds that have passed, whatever `set_by` did to the time of day."""
        return self._elapsed

    def wait(self, seconds: float, wake: threading.Event | None = None) -> None:
        """Move the time on by *seconds* at once."""
        if wake is None or not wake.is_set():
            self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> None:
        """Move the time on by *seconds*."""
        self._now += seconds
        self._elapsed += seconds

    def set_by(self, seconds: float) -> None:
        """Set the time of day on (or back, when negative) without any time passing."""
        self._now += seconds
