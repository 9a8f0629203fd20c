"""How often to save: the interval at which saves and lost work together cost least."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, Iterable

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
    """
    Hold one stretch of work: how long it was, and whether its end took work that was not saved.

    *ended* is false for the stretch that still goes on.
    """

    seconds: float
    lost: bool
    ended: bool = True


@dataclass(frozen=True)
class ZoneLives:
    """Hold what is remembered of TPUs of one type in one zone: for how long they lived in all, how many went."""

    lived: float = 0.0
    losses: int = 0


UNKNOWN_ZONE = ZoneLives()


def zone_lives(capacity: bytes, zone: str, tpu_type: str) -> ZoneLives:
    """Return what the bucket's memory of zones knows of one; nothing when it cannot be read or is absurd."""
    try:
        places: Any = json.loads(capacity)["places"]
        one = next(one for one in places if (one["zone"], one["type"]) == (zone, tpu_type))
        lived, losses = float(one["lived"]), int(one["lives"])
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError, OverflowError):
        return UNKNOWN_ZONE
    return ZoneLives(lived, losses) if losses > 0 and isfinite(lived) and lived >= 0 else UNKNOWN_ZONE


def best_interval(save_seconds: float, lifetime: float) -> float:
    """Return Young's interval between saves, in seconds."""
    # The cost of saving falls with the interval, the work that is lost grows with it: here both are equal.
    return sqrt(2 * save_seconds * lifetime)


def expected_life(lives: Iterable[Life], zone: ZoneLives = UNKNOWN_ZONE) -> float:
    """
    Return the mean seconds between two losses of work, from one assumed life, those of this job, and the zone's.

    The time of a life without a loss counts as well, so a long quiet run lengthens the mean before any end.
    """
    recent = list(lives)[-RECENT:]
    observed = sum(max(0.0, life.seconds) for life in recent)
    ends, lost = 1 + sum(life.ended for life in recent), 1 + sum(life.lost for life in recent)
    # The zone's memory does not know which ends took work. The job does: after a notice that left time
    # to save, nothing is lost, and saving more often would have won nothing.
    mean = (PRIOR_LIFE + observed + zone.lived) / (ends + zone.losses)
    return mean * ends / lost


def saving_interval(cost: float, life: float, least: float = 0.0) -> float:
    """
    Return the seconds between two saves that stop the training for *cost*, where losses are *life* apart.

    *least* is how long a save takes until it is in the bucket: before that the next one is of no use.
    """
    wanted = best_interval(cost, life)
    return min(max(wanted, cost, least, SHORTEST), LONGEST)
