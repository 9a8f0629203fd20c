"""Define the one back-off policy: growing pauses between tries."""

from dataclasses import dataclass

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
