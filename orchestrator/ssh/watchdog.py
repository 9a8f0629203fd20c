"""The bound of every remote step: a connection that is silent or late is closed."""

import threading
from collections.abc import Callable
from time import monotonic


class Watchdog:
    """
    Call *close* once when the deadline passes or nothing came for *stall* seconds.

    *deadline* is in seconds from now, None for a session without end. *reason* says why it closed.
    """

    def __init__(self, close: Callable[[], None], deadline: float | None, stall: float) -> None:
        self.reason = ""
        self._close = close
        self._start = monotonic()
        self._deadline = deadline
        self._stall = stall
        self._answered_at = self._start
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ssh-watchdog", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Reset the stall timer: the other side answered just now."""
        self._answered_at = monotonic()

    def remaining(self) -> float | None:
        """Return the seconds until the deadline."""
        return None if self._deadline is None else self._start + self._deadline - monotonic()

    def stop(self) -> None:
        """End the watch; *close* is not called any more."""
        self._over.set()

    def wait(self, seconds: float) -> bool:
        """Wait for *seconds*; return True when the watch is over."""
        return self._over.wait(seconds)

    def _run(self) -> None:
        while not self._over.wait(self._next()):
            self.reason = self._verdict()
            if self.reason:
                # The reason comes before the close: whoever fails by it asks for it at once.
                self._over.set()
                self._close()

    def _next(self) -> float:
        stalls_in = self._answered_at + self._stall - monotonic()
        remaining = self.remaining()
        return max(0.01, stalls_in if remaining is None else min(stalls_in, remaining))

    def _verdict(self) -> str:
        remaining = self.remaining()
        if remaining is not None and remaining <= 0:
            return f"it took longer than {self._deadline:g} s"
        if monotonic() - self._answered_at >= self._stall:
            return f"no answer for {self._stall:g} s"
        return ""
