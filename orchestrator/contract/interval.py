"""Compute the interval between saves at which saving and lost work together take the least time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, Iterable

PRIOR_BETWEEN_INTERRUPTIONS = 7200.0
"""Assumed seconds between two interruptions before any was observed: a bad zone has 0.3 h, a good one 12 h."""
PRIOR_SAVE_PAUSE = 5.0
"""Assumed seconds for which a save stops the training, before one was measured."""
SHORTEST_PAUSE = 0.1
"""Seconds between two polls of the job's step: shorter pauses cannot be measured and count as this long."""
MIN_INTERVAL, MAX_INTERVAL = 10.0, 3600.0
"""Bounds of the interval in seconds, against impossible measurements."""
RECENT = 20
"""Number of newest periods of work that count: older ones say little about the zone today."""


@dataclass(frozen=True)
class WorkPeriod:
    """
    One period of work: its length in seconds, and whether its end lost unsaved work.

    *ended* is false for the period under way.
    """

    seconds: float
    lost: bool
    ended: bool = True


@dataclass(frozen=True)
class ZonePreemptions:
    """TPUs of one type in one zone: their lifetimes in seconds, added up, and how many were preempted."""

    lived: float = 0.0
    preemptions: int = 0


UNKNOWN_ZONE = ZonePreemptions()


def zone_preemptions(capacity: bytes, zone: str, tpu_type: str) -> ZonePreemptions:
    """Return what the capacity history in the bucket says of a zone; nothing if it is unreadable or absurd."""
    try:
        zones: Any = json.loads(capacity)["places"]
        one = next(one for one in zones if (one["zone"], one["type"]) == (zone, tpu_type))
        lived, preemptions = float(one["lived"]), int(one["lives"])
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError, OverflowError):
        return UNKNOWN_ZONE
    known = preemptions > 0 and isfinite(lived) and lived >= 0
    return ZonePreemptions(lived, preemptions) if known else UNKNOWN_ZONE


def best_save_interval(save_pause: float, between_interruptions: float) -> float:
    """Return Young's interval between saves, in seconds."""
    # The time of all saves falls with the interval and the lost work grows with it; here both are equal.
    return sqrt(2 * save_pause * between_interruptions)


def time_between_interruptions(periods: Iterable[WorkPeriod], zone: ZonePreemptions = UNKNOWN_ZONE) -> float:
    """
    Return the mean seconds between interruptions that lose work, from an assumed period, this job's and the zone's.

    A period that lost nothing counts with its length, so a long quiet run raises the mean at once.
    """
    recent = list(periods)[-RECENT:]
    observed = sum(max(0.0, period.seconds) for period in recent)
    ends, lost = 1 + sum(period.ended for period in recent), 1 + sum(period.lost for period in recent)
    # The zone's history does not know which ends lost work. The job does: after a notice with time to save, nothing
    # is lost, and more frequent saves would have gained nothing.
    mean = (PRIOR_BETWEEN_INTERRUPTIONS + observed + zone.lived) / (ends + zone.preemptions)
    return mean * ends / lost


def save_interval(save_pause: float, between_interruptions: float, least: float = 0.0) -> float:
    """
    Return the seconds between saves that stop the training for *save_pause* seconds.

    *between_interruptions* is the expected time between those; *least* is how long a save takes to reach the
    bucket; an earlier next save would be useless.
    """
    wanted = best_save_interval(save_pause, between_interruptions)
    return min(max(wanted, save_pause, least, MIN_INTERVAL), MAX_INTERVAL)
