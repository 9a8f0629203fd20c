"""Bound every remote step: close a connection that is silent or past its timeout."""

import threading
from collections.abc import Callable
from time import monotonic


class Watchdog:
    """
    Call *close* once when the timeout passes or nothing has arrived for *stall* seconds.

    *timeout* is in seconds from now (None: no timeout). *message* then says which of the two it was.
    """

    def __init__(self, close: Callable[[], None], timeout: float | None, stall: float) -> None:
        self.message = ""
        self._close = close
        self._start = monotonic()
        self._timeout = timeout
        self._stall = stall
        self._answered_at = self._start
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ssh-watchdog", daemon=True)
        self._thread.start()

    def touch(self) -> None:
        """Reset the stall timer; safe to call from any thread."""
        self._answered_at = monotonic()

    def remaining(self) -> float | None:
        """Return the seconds until the timeout, None without one."""
        return None if self._timeout is None else self._start + self._timeout - monotonic()

    def stop(self) -> None:
        """Stop the watchdog; *close* is not called any more."""
        self._over.set()

    def wait(self, seconds: float) -> bool:
        """Wait up to *seconds*; return whether the watchdog has stopped."""
        return self._over.wait(seconds)

    def _run(self) -> None:
        while not self._over.wait(self._next()):
            self.message = self._verdict()
            if self.message:
                # Set the reason before closing: the thread whose read fails asks for it at once.
                self._over.set()
                self._close()

    def _next(self) -> float:
        stalls_in = self._answered_at + self._stall - monotonic()
        remaining = self.remaining()
        return max(0.01, stalls_in if remaining is None else min(stalls_in, remaining))

    def _verdict(self) -> str:
        remaining = self.remaining()
        if remaining is not None and remaining <= 0:
            return f"it took longer than {self._timeout:g} s"
        if monotonic() - self._answered_at >= self._stall:
            return f"no answer for {self._stall:g} s"
        return ""
