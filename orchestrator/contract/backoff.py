"""Define how everything waits and tries again: growing pauses, and one loop over tries."""

from dataclasses import dataclass
from typing import Callable, Tuple, Type, TypeVar

T = TypeVar("T")

MOST_DOUBLINGS = 60
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
        doublings = min(max(failures - 1, 0), MOST_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * (1 - self.jitter * chance)


def growing(first: float, waited: float) -> float:
    """Return the pause between two looks after *waited* seconds: a twentieth of them, at least *first*."""
    return max(first, waited / 20)


def retried(
    call: Callable[[], T],
    passing: Tuple[Type[BaseException], ...],
    failed: Callable[[int, BaseException], None],
) -> T:
    """
    Call until it succeeds, and return its value.

    *failed* gets the number of failures in a row and the last one, an error of *passing*. It waits, or raises
    to end the tries.
    """
    failures = 0
    while True:
        try:
            return call()
        except passing as error:
            failures += 1
            failed(failures, error)
