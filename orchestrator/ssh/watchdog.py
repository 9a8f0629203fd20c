"""The bound of every remote step: a link that is silent or late is closed."""

import threading
from collections.abc import Callable
from time import monotonic


class Watchdog:
    """
    Call *close* once when the deadline passes or nothing was seen for *stall* seconds.

    *deadline* is in seconds from now, None for a session without end. *reason* tells why it closed.
    """

    def __init__(self, close: Callable[[], None], deadline: float | None, stall: float) -> None:
        self.reason = ""
        self._close = close
        self._start = monotonic()
        self._deadline = deadline
        self._longest = stall
        self._seen = self._start
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ssh-watchdog", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Note that the other side answered just now."""
        self._seen = monotonic()

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
                self._over.set()
                self._close()

    def _next(self) -> float:
        quiet = self._seen + self._longest - monotonic()
        left = self.remaining()
        return max(0.01, quiet if left is None else min(quiet, left))

    def _verdict(self) -> str:
        left = self.remaining()
        if left is not None and left <= 0:
            return f"it took longer than {self._deadline:g} s"
        if monotonic() - self._seen >= self._longest:
            return f"no answer for {self._longest:g} s"
        return ""
