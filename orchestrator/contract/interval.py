"""How often to save: the interval at which saves and lost work together cost least."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import Iterable

PRIOR_LIFE = 7200.0
"""Seconds between two losses that are likely before any was seen: a bad zone has 0.3 h, a good one 12 h."""
PRIOR_SAVE = 5.0
"""Seconds for which a save is taken to stop the training before one was seen."""
SHORTEST, LONGEST = 10.0, 3600.0
"""Bounds of the interval in seconds, against figures that cannot be true."""
RECENT = 20
"""Lives that count: what a zone did long ago says little about today."""


@dataclass(frozen=True)
class Life:
    """Hold one stretch of work: how long it was, and whether its end took work that was not saved."""

    seconds: float
    lost: bool


def best_interval(save_seconds: float, lifetime: float) -> float:
    """Return Young's interval between saves, in seconds."""
    # The cost of saving falls with the interval, the work that is lost grows with it: here both are equal.
    return sqrt(2 * save_seconds * lifetime)


def expected_life(lives: Iterable[Life]) -> float:
    """
    Return the mean seconds between two losses: one life as expected, and those seen.

    The time of a life without a loss counts as well, so a long quiet run lengthens the mean before any end.
    """
    recent = list(lives)[-RECENT:]
    observed = sum(max(0.0, life.seconds) for life in recent)
    return (PRIOR_LIFE + observed) / (1 + sum(life.lost for life in recent))


def saving_interval(save_seconds: float, lives: Iterable[Life]) -> float:
    """Return the seconds between two saves for what was seen so far. No save is longer than the work before it."""
    wanted = best_interval(save_seconds, expected_life(lives))
    return min(max(wanted, save_seconds, SHORTEST), LONGEST)
