"""Try again, within bounds and with full jitter."""

from __future__ import annotations

import random
import time
from typing import Callable, TypeVar

from orchestrator.contract.machine_errors import TransientError

T = TypeVar("T")
FIRST_PAUSE = 0.25
LONGEST_PAUSE = 16.0
_dice = random.SystemRandom()


def retrying(call: Callable[[float], T], seconds: float) -> T:
    """
    Return what *call* returns; try again after TransientError until *seconds* are over.

    *call* gets the seconds that are left, as a bound for its own waiting. The last TransientError
    is raised when time is over. Pauses are drawn from [0, min(16 s, 0.25 s * 2**n)].
    """
    end = time.monotonic() + seconds
    tries = 0
    while True:
        try:
            return call(max(1.0, end - time.monotonic()))
        except TransientError:
            pause = _dice.uniform(0, min(LONGEST_PAUSE, FIRST_PAUSE * 2**tries))
            tries += 1
            if time.monotonic() + pause >= end:
                raise
            time.sleep(pause)  # The agent runs on real machines only: the service needs real time to recover.
