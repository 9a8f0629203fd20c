"""Try again, within bounds and with full jitter."""

from __future__ import annotations

import random
import time
from typing import Callable, TypeVar

from orchestrator.contract.backoff import Backoff
from orchestrator.contract.machine_errors import TransientError

T = TypeVar("T")
PAUSES = Backoff(0.25, 16.0, jitter=1.0)
_dice = random.SystemRandom()


def retrying(call: Callable[[float], T], seconds: float) -> T:
    """
    Return what *call* returns; try again after TransientError until *seconds* are over.

    *call* gets the seconds that are left, as a bound for its own waiting. The last TransientError
    is raised when time is over.
    """
    end = time.monotonic() + seconds
    failures = 0
    while True:
        try:
            return call(max(1.0, end - time.monotonic()))
        except TransientError:
            failures += 1
            pause = PAUSES.after(failures, _dice.random())
            if time.monotonic() + pause >= end:
                raise
            time.sleep(pause)  # The agent runs on real machines only: the service needs real time to recover.
