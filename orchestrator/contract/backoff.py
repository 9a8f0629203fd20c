"""Pauses that grow while something fails: the one policy of everything that tries again."""

from dataclasses import dataclass

MOST_DOUBLINGS = 60
"""Beyond it a float could overflow, and every pause is the longest one already."""


@dataclass(frozen=True)
class Backoff:
    """
    Double from *first* to *longest* seconds.

    *jitter* is the share of a pause that chance may take off, so that not all come back in the same moment.
    """

    first: float
    longest: float
    jitter: float = 0.0

    def after(self, failures: int, chance: float = 0.0) -> float:
        """Return the pause in seconds after so many failures in a row; *chance*, from 0 to 1, shortens it."""
        doublings = min(max(failures - 1, 0), MOST_DOUBLINGS)
        return min(self.longest, self.first * 2.0**doublings) * (1 - self.jitter * chance)
