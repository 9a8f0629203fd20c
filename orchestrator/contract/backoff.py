"""Define how everything waits and tries again: growing pauses, failures in a row, loops over tries and polls."""

import math
from dataclasses import dataclass
from typing import Callable, Tuple, Type, TypeVar

T = TypeVar("T")

MAX_DOUBLINGS = 60
"""Doublings after which the pause stays the same, because a larger exponent could overflow a float."""


@dataclass(frozen=True)
class Backoff:
    """
    Double the pause from *first* to *longest* seconds.

    *jitter* is the share of a pause that chance may take away, so that many clients do not retry at once.
    """

    first: float
    longest: float
    jitter: float = 0.0

    def after(self, failures: int, chance: float = 0.0) -> float:
        """Return the pause in seconds after *failures* in a row; *chance*, from 0 to 1, shortens it."""
        doublings = min(max(failures - 1, 0), MAX_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * (1 - self.jitter * chance)


@dataclass
class ConsecutiveFailures:
    """
    Count failures in a row, and tell the pause before the next try.

    *since* is the time of the first of them, by the clock of the caller; it means nothing while *count* is 0.
    """

    backoff: Backoff
    count: int = 0
    since: float = 0.0

    def failed(self, at: float = 0.0) -> None:
        """Count a failure *at* this time, in seconds."""
        if not self.count:
            self.since = at
        self.count += 1

    def reset(self) -> None:
        """Forget them after a success: the next failure is the first one again."""
        self.count = 0

    def pause(self, chance: float = 0.0) -> float:
        """Return the seconds before the next try; *chance*, from 0 to 1, shortens them."""
        return self.backoff.after(self.count, chance)


def growing(first: float, waited: float) -> float:
    """Return the pause between two checks after *waited* seconds: a twentieth of them, at least *first*."""
    return max(first, waited / 20)


def polled(
    ask: Callable[[], T],
    pause: float,
    *,
    now: Callable[[], float],
    wait: Callable[[float], object],
    timeout: float = math.inf,
    longest: float = math.inf,
) -> T:
    """
    Ask until the answer is true or *timeout* seconds have passed; return the last answer.

    The pauses grow as `growing` says, from *pause* to *longest*.
    """
    start = now()
    while True:
        found = ask()
        waited = now() - start
        if found or waited >= timeout:
            return found
        wait(min(growing(pause, waited), longest))


def retried(
    call: Callable[[], T],
    passing: Tuple[Type[BaseException], ...],
    backoff: Backoff,
    *,
    now: Callable[[], float],
    wait: Callable[[float], None],
    timeout: float = math.inf,
    tries: float = math.inf,
    failed: Callable[[BaseException], None] = lambda _error: None,
    chance: Callable[[], float] = lambda: 0.0,
) -> T:
    """
    Call until it succeeds, and return its value; after an error of *passing*, wait and call again.

    The last call begins when *timeout* seconds are over, or is the last of *tries*; its error is raised.
    *failed* gets each error before the pause: it reports it, or raises to end the tries.
    """
    failures, end = ConsecutiveFailures(backoff), now() + timeout
    while True:
        try:
            return call()
        except passing as error:
            failures.failed()
            remaining = end - now()
            if remaining <= 0 or failures.count >= tries:
                raise
            failed(error)
            # Cut, so that one call is made at the very end: for files of a dying machine there is no later one.
            wait(min(failures.pause(chance()), remaining))
