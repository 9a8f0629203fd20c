"""Define the clock by which controller and machines tell the time and wait; tests have one that jumps."""

from __future__ import annotations

import threading
from typing import Optional, Protocol


class Clock(Protocol):
    """The current time (seconds since the epoch, UTC) and waiting."""

    def now(self) -> float:
        """Return seconds since the epoch."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary start; never set back."""

    def wait(self, seconds: float, wake: Optional[threading.Event] = None) -> None:
        """Return after *seconds*, or earlier when *wake* is set."""
