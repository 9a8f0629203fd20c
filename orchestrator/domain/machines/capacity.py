"""
Remember each zone's capacity, and order zones by it.

The estimate uses only what has happened so far: how likely the zone is still empty, how long TPUs have lived
there, and how it was at this hour on other days.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

SHORTEST_OUTAGE = 300.0
"""Shortest time, in seconds, for which a zone that has refused or preempted counts as empty."""
USUAL_LIFETIME, CERTAINTY = 4 * 3600.0, 1.0
"""Assumed lifetime of a TPU in seconds, and the number of observed ones that this weighs."""
WAY_BACK = 600.0
"""Seconds of work that each preemption takes; a longer lifetime is worth what it saves of these."""
# More than a file names, but bounded: the record is written in each pass and must not grow for ever.
MAX_ZONES = 64
HOUR = 3600.0
FULL_FOR = 24 * HOUR
"""Seconds for which a quota refusal is remembered; the quota may be raised afterwards."""


@dataclass(frozen=True)
class ZoneHistory:
    """
    One zone for one TPU type; times are in seconds since the epoch.

    *out_since* and *out_at* are the first and the last sign (refusal or preemption) of the present outage, 0
    without one. *hours* holds (hour of the day in UTC, times granted, times out). *full_at* is when quota
    last refused a TPU beside one of ours, 0 for never.
    """

    zone: str
    type: str = ""
    out_since: float = 0.0
    out_at: float = 0.0
    out_by_preemption: bool = False
    granted_at: float = 0.0
    granted: int = 0
    refused: int = 0
    preemptions: int = 0
    lived: float = 0.0
    hours: tuple[tuple[int, int, int], ...] = ()
    full_at: float = 0.0


CapacityHistory = tuple[ZoneHistory, ...]


def zone_history(history: CapacityHistory, zone: str, tpu_type: str) -> ZoneHistory:
    """Return the history of a zone, a new one if there is none."""
    return next((p for p in history if (p.zone, p.type) == (zone, tpu_type)), ZoneHistory(zone, tpu_type))


def after_refusal(history: CapacityHistory, zone: str, tpu_type: str, at: float) -> CapacityHistory:
    """Return the history after a zone refused for lack of capacity or quota."""
    one = zone_history(history, zone, tpu_type)
    # Refusals within one hour count once, so that frequent requests do not make the hour look worse.
    again = one.out_at > 0 and int(one.out_at // HOUR) == int(at // HOUR)
    hours = one.hours if again else _with_hour(one.hours, at, granted=0, out=1)
    since = one.out_since or at
    return _with(
        history,
        replace(
            one, out_since=since, out_at=at, out_by_preemption=False, refused=one.refused + 1, hours=hours
        ),
    )


def after_full(history: CapacityHistory, zone: str, tpu_type: str, at: float) -> CapacityHistory:
    """Return the history after quota refused a TPU in a zone that still had one of ours."""
    one = zone_history(history, zone, tpu_type)
    return _with(history, replace(one, full_at=at)) if at > one.full_at else history


def holds_one(history: CapacityHistory, zone: str, tpu_type: str, now: float) -> bool:
    """Return whether the zone's quota is known to have no room for a TPU beside one of ours."""
    known = zone_history(history, zone, tpu_type).full_at
    return known > 0 and now - known < FULL_FOR


def after_grant(history: CapacityHistory, zone: str, tpu_type: str, at: float) -> CapacityHistory:
    """Return the history after a TPU became READY."""
    one = zone_history(history, zone, tpu_type)
    hours = _with_hour(one.hours, at, granted=1, out=0)
    # The counts stay: a grant ends an outage, and does not undo earlier refusals.
    there = replace(one, out_since=0.0, out_at=0.0, granted_at=at)
    return _with(history, replace(there, granted=one.granted + 1, hours=hours))


def after_preemption(
    history: CapacityHistory, zone: str, tpu_type: str, at: float, lived: float
) -> CapacityHistory:
    """Return the history after a TPU was preempted that had lived for *lived* seconds."""
    one = zone_history(history, zone, tpu_type)
    worn = replace(one, out_since=at, out_at=at, out_by_preemption=True)
    return _with(history, replace(worn, preemptions=one.preemptions + 1, lived=one.lived + max(0.0, lived)))


def merged(history: CapacityHistory, others: CapacityHistory, now: float) -> CapacityHistory:
    """Return *history* with each entry of *others* that has a later event; events after *now* are ignored."""
    known = {(one.zone, one.type): _last(one) for one in history}
    # An event in the future is from a wrong clock and would shadow all true ones for ever.
    newer = [one for one in others if known.get((one.zone, one.type), 0.0) < _last(one) <= now]
    for one in sorted(newer, key=_last):
        history = _with(history, one)
    for one in others:
        history = after_full(history, one.zone, one.type, one.full_at) if one.full_at <= now else history
    return history


def _last(one: ZoneHistory) -> float:
    return max(one.out_at, one.granted_at)


def _with(history: CapacityHistory, one: ZoneHistory) -> CapacityHistory:
    others = tuple(p for p in history if (p.zone, p.type) != (one.zone, one.type))
    # Newest last, so that entries without news for longest are dropped.
    return (*others, one)[-MAX_ZONES:]


def _with_hour(
    hours: tuple[tuple[int, int, int], ...], at: float, *, granted: int, out: int
) -> tuple[tuple[int, int, int], ...]:
    hour = int(at // HOUR) % 24
    was = next((h for h in hours if h[0] == hour), (hour, 0, 0))
    others = [h for h in hours if h[0] != hour]
    return tuple(sorted([*others, (hour, was[1] + granted, was[2] + out)]))


def emptiness(one: ZoneHistory, now: float) -> float:
    """Return the probability that the zone is still empty: an outage tends to last as long again as it has."""
    if not one.out_at:
        return 0.0
    lasted = SHORTEST_OUTAGE + max(0.0, one.out_at - one.out_since)
    return lasted / (lasted + max(0.0, now - one.out_at))


def worth(one: ZoneHistory, now: float) -> float:
    """Return the value of asking this zone now, from 0 to 1."""
    lifetime = (CERTAINTY * USUAL_LIFETIME + one.lived) / (CERTAINTY + one.preemptions)
    hour = int(now // HOUR) % 24
    _, granted, out = next((h for h in one.hours if h[0] == hour), (hour, 0, 0))
    # The 4 damps hours with little data: one refusal at this hour must not decide.
    return (
        (1 - emptiness(one, now)) * lifetime / (lifetime + WAY_BACK) * (1 - 0.5 * out / (granted + out + 4))
    )


def ranked_zones(
    zones: Sequence[str],
    history: CapacityHistory,
    tpu_type: str,
    now: float,
    home: str = "",
    nearness: Mapping[str, float] | None = None,
    fares: Mapping[str, float] | None = None,
) -> tuple[str, ...]:
    """
    Return the zones in the order of requests: by worth; among equals the last TPU's zone, then the file's order.

    *nearness* scales a zone's worth by its distance to the bucket, 1 if missing. *fares* are subtracted: the
    price of an hour in the zone, if an hour of work is worth 1.
    """
    near, fare = nearness or {}, fares or {}
    values = {
        zone: worth(zone_history(history, zone, tpu_type), now) * near.get(zone, 1.0) - fare.get(zone, 0.0)
        for zone in zones
    }
    # Rounded, so that noise does not override the user's order.
    return tuple(sorted(zones, key=lambda zone: (-round(values[zone], 3), zone != home)))


def passed_over(
    zones: Sequence[str],
    history: CapacityHistory,
    tpu_type: str,
    now: float,
    chosen: str,
    nearness: Mapping[str, float] | None = None,
    fares: Mapping[str, float] | None = None,
) -> str:
    """Return why zones that the file names earlier are not asked first; empty if there are none."""
    earlier = zones[: zones.index(chosen)] if chosen in zones else ()
    near, fare = nearness or {}, fares or {}

    def otherwise(zone: str) -> str:
        if near.get(zone, 1.0) < 1.0:
            return "is far from the bucket"
        return "costs more" if fare.get(zone, 0.0) > fare.get(chosen, 0.0) else "is asked later"

    return ", ".join(
        f"{z} {_outage(zone_history(history, z, tpu_type), now) or otherwise(z)}" for z in earlier
    )


def zone_summary(one: ZoneHistory) -> str:
    """Return what is remembered of a zone, in words."""
    average = " on average" if one.preemptions > 1 else ""
    lived = _span(one.lived / max(1, one.preemptions))
    lost = f", {one.preemptions} lost after {lived}{average}" if one.preemptions else ""
    # No "0 refused": a refusal for the quota that our own TPU holds is not counted, and is shown beside this.
    refused = f", {one.refused} refused" if one.refused else ""
    return f"{one.granted} created{refused}{lost}"


def _outage(one: ZoneHistory, now: float) -> str:
    if one.out_at and emptiness(one, now) >= 0.1:
        what = "preempted one" if one.out_by_preemption else "refused"
        return f"{what} {_ago(now - one.out_at)}"
    if one.preemptions:
        return f"has kept one for {_span(one.lived / one.preemptions)} on average"
    return ""


def _ago(seconds: float) -> str:
    return "just now" if seconds < 60 else f"{_span(seconds)} ago"


def _span(seconds: float) -> str:
    minutes = max(0.0, seconds) / 60
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.0f} min" if minutes < 120 else f"{minutes / 60:.1f} h"
