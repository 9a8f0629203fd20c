"""Compute the interval between saves at which saving and lost work together take the least time."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite, sqrt
from typing import Any, Iterable

PRIOR_BETWEEN_LOSSES = 7200.0
"""Assumed seconds between two losses before any was observed: a bad zone has 0.3 h, a good one 12 h."""
PRIOR_SAVE_PAUSE = 5.0
"""Assumed seconds for which a save stops the training, before one was measured."""
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
class ZoneLosses:
    """The record of TPUs of one type in one zone: their lifetimes in seconds, added up, and how many were lost."""

    lived: float = 0.0
    losses: int = 0


UNKNOWN_ZONE = ZoneLosses()


def zone_losses(capacity: bytes, zone: str, tpu_type: str) -> ZoneLosses:
    """Return what the capacity history in the bucket says of a zone; nothing if it is unreadable or absurd."""
    try:
        zones: Any = json.loads(capacity)["places"]
        one = next(one for one in zones if (one["zone"], one["type"]) == (zone, tpu_type))
        lived, losses = float(one["lived"]), int(one["lives"])
    except (ValueError, KeyError, TypeError, StopIteration, RecursionError, OverflowError):
        return UNKNOWN_ZONE
    return ZoneLosses(lived, losses) if losses > 0 and isfinite(lived) and lived >= 0 else UNKNOWN_ZONE


def best_interval(save_pause: float, between_losses: float) -> float:
    """Return Young's interval between saves, in seconds."""
    # The time of all saves falls with the interval and the lost work grows with it; here both are equal.
    return sqrt(2 * save_pause * between_losses)


def time_between_losses(periods: Iterable[WorkPeriod], zone: ZoneLosses = UNKNOWN_ZONE) -> float:
    """
    Return the mean seconds between two losses of work, from an assumed period, this job's and the zone's.

    A period without a loss counts with its length, so a long quiet run raises the mean before any loss.
    """
    recent = list(periods)[-RECENT:]
    observed = sum(max(0.0, period.seconds) for period in recent)
    ends, lost = 1 + sum(period.ended for period in recent), 1 + sum(period.lost for period in recent)
    # The zone's history does not know which ends lost work. The job does: after a notice with time to save, nothing
    # is lost, and more frequent saves would have gained nothing.
    mean = (PRIOR_BETWEEN_LOSSES + observed + zone.lived) / (ends + zone.losses)
    return mean * ends / lost


def saving_interval(save_pause: float, between_losses: float, least: float = 0.0) -> float:
    """
    Return the seconds between saves that stop the training for *save_pause* seconds.

    *between_losses* is the expected time between losses; *least* is how long a save takes to reach the
    bucket; an earlier next save would be useless.
    """
    wanted = best_interval(save_pause, between_losses)
    return min(max(wanted, save_pause, least, MIN_INTERVAL), MAX_INTERVAL)
