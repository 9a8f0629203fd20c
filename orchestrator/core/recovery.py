"""
When and where to ask for the next node: zone order, back-off by class of refusal, when to give up.
"""

from orchestrator.core.history import History, Refusal
from orchestrator.core.spec import Spec
from orchestrator.errors import Retry

SECOND_WITNESS = 30.0
"""Seconds between two sightings of an absence before it is believed (design rule, goals M7)."""

FIRST_DELAY = {
    Retry.CAPACITY: 5.0,
    Retry.QUOTA: 5.0,
    Retry.TRANSIENT: 2.0,
    Retry.UNKNOWN: 10.0,
    Retry.PERMANENT: 60.0,
}
LONGEST_DELAY = {
    Retry.CAPACITY: 60.0,
    Retry.QUOTA: 120.0,
    Retry.TRANSIENT: 60.0,
    Retry.UNKNOWN: 300.0,
    Retry.PERMANENT: 300.0,
}
QUOTA_TRIES = 5
UNKNOWN_TRIES = 8


def next_zone(spec: Spec, history: History) -> str:
    """
    Return the zone for the next create: the first one not refused since the last READY, else in turn.
    """
    zones = spec.tpu.zones
    refused = [r.zone for r in history.refusals if r.retry in {Retry.CAPACITY, Retry.QUOTA}]
    fresh = [zone for zone in zones if zone not in refused]
    if fresh:
        return history.zone if history.zone in fresh else fresh[0]
    return min(zones, key=lambda zone: (refused.count(zone), zones.index(zone)))


def create_gate(history: History, zone: str) -> float:
    """
    Return the earliest time for the next create in *zone*: doubling from the first delay, capped.
    """
    here = [r for r in history.refusals if r.zone == zone]
    if not here:
        return 0.0
    last = here[-1]
    streak = sum(1 for r in here if r.retry is last.retry)
    delay = FIRST_DELAY[last.retry] * 2.0 ** min(streak - 1, 10)
    return last.at + min(delay, LONGEST_DELAY[last.retry])


def hopeless(history: History) -> Refusal | None:
    """
    Return the refusal after which asking again is pointless, or None.

    Capacity comes back by itself and is asked for without end; a permission does not.
    """
    by_class: dict[Retry, int] = {}
    for refusal in history.refusals:
        by_class[refusal.retry] = by_class.get(refusal.retry, 0) + 1
    limits = {Retry.PERMANENT: 1, Retry.QUOTA: QUOTA_TRIES, Retry.UNKNOWN: UNKNOWN_TRIES}
    for retry, limit in limits.items():
        if by_class.get(retry, 0) >= limit:
            return [r for r in history.refusals if r.retry is retry][-1]
    return None
