"""The one place where tests wait in real time: for other processes, which give no signal."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def until(
    wanted: Callable[[], T],
    what: str,
    seconds: float,
    pause: float = 0.05,
    log: Callable[[], object] | None = None,
) -> T:
    """
    Return the first true value of *wanted*, which is asked every *pause* seconds.

    After *seconds*, raise AssertionError with *what* was waited for and for how long, and what *log* returns.
    """
    end = time.monotonic() + seconds
    while not (found := wanted()):
        if time.monotonic() > end:
            more = "" if log is None else f"\n{log()}"
            raise AssertionError(f"waited {seconds:g} s for: {what}{more}")
        time.sleep(pause)
    return found
