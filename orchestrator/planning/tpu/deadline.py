"""
Choose between spot and on demand so that a job finishes in time for the least money.

`choose(situation) -> ModeChoice` is the only entry point. It is pure and uses only what was observed so far.
The engine calls it in each pass, the replay over traces at each tick.

Terms: *slack* is the time to the deadline minus the remaining work. It is constant while a job makes progress
and shrinks at all other times. *cold* is the time from requesting a node to its first new step,
*commit_interval* the time between two commits: the most work that a sudden end destroys.

The policy waits while the slack is not needed for future changes, then uses on demand in each gap and leaves
it when spot is back. It uses only offers whose price the required progress allows.

The safety net makes a deadline safe: without a node, and with a slack below two cold starts and one commit
interval, the next node is on demand and is kept.
"""

from dataclasses import dataclass
from enum import Enum

HEADROOM = 1.25
"""Factor by which the expected spot time must exceed the need before more expensive offers are rejected."""
USUAL = 4 * 3600.0
"""Seconds that a spot node requested from on demand is assumed to last at least."""
RETURN = 1 / 3
"""Share of the reserve that must remain before returning to spot; below 1, so that the choice does not flutter."""


class Mode(Enum):
    """What a job runs on; WAIT is nothing."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    WAIT = "wait"


@dataclass(frozen=True)
class Offer:
    """
    Spot capacity in one zone.

    *up* says whether a node can be had now, None if no recent request tells. *available* is the fraction of time
    in which one could be had, *lifetime* the seconds that a new node is expected to last; both are estimates from
    the past.
    """

    zone: str
    usd_hour: float
    up: bool | None = None
    available: float = 0.5
    lifetime: float = 4 * 3600.0


@dataclass(frozen=True)
class Situation:
    """
    What a choice depends on; times in seconds, *done* and *work* in seconds of work.

    *done* is the work in complete checkpoints, *unsaved* the work that a change would lose. *mode* and
    *zone* are those of the present node, also while it starts. *gap* is the average time without spot.
    *starting* says that the node has not begun to work, *overlaps* that it keeps working while spot is
    requested.
    """

    now: float
    began: float
    deadline: float
    work: float
    done: float
    cold: float
    commit_interval: float
    on_demand_usd_hour: float
    offers: tuple[Offer, ...]
    mode: Mode = Mode.WAIT
    zone: str = ""
    unsaved: float = 0.0
    gap: float = 3600.0
    starting: bool = False
    overlaps: bool = False

    @property
    def remaining(self) -> float:
        """Return the remaining work in seconds."""
        return max(0.0, self.work - self.done)

    @property
    def slack(self) -> float:
        """Return the seconds that may pass without progress."""
        return self.deadline - self.now - self.remaining

    @property
    def change(self) -> float:
        """Return the slack, in seconds, that the sudden end of a spot node costs, including the next start."""
        return 2 * self.cold + self.commit_interval


@dataclass(frozen=True)
class ModeChoice:
    """Say what to run on next, and why; the present mode and zone mean no change."""

    mode: Mode
    zone: str = ""
    message: str = ""


def choose(situation: Situation) -> ModeChoice:
    """Return what the job should run on from now on."""
    if situation.remaining <= 0:
        return ModeChoice(Mode.WAIT, message="all the work is done")
    if situation.mode is Mode.SPOT:
        return _hold(situation)
    if situation.mode is Mode.ON_DEMAND:
        return _on_demand(situation)
    return _idle(situation)


def granted_fraction(granted: float, asked: float) -> float:
    """Return the fraction of time in which spot can be had, from *granted* of *asked* requests; 0.5 without any."""
    # Laplace's rule of succession: one grant or refusal alone proves nothing.
    return (granted + 1.0) / (asked + 2.0)


def lifetime_of(seconds: float, ends: float) -> float:
    """Return how many seconds a node will last, given *ends* ends in *seconds* of use; four hours without data."""
    return (seconds + 2 * 3600.0) / (ends + 0.5)


def on_time(situation: Situation) -> str:
    """Return the forecast: "on time", "at risk" if one more sudden end is too many, or "cannot be met"."""
    starting = situation.cold if situation.mode is Mode.WAIT else 0.0
    if situation.slack < starting:
        return "cannot be met"
    sudden = situation.cold + situation.commit_interval if situation.mode is Mode.SPOT else starting
    return "at risk" if situation.slack < sudden else "on time"


def _hold(s: Situation) -> ModeChoice:
    """
    Keep a spot node until it is preempted, because leaving it costs a certain cold start.

    Move only if another zone is so much cheaper that the move pays for itself.
    """
    if s.starting and s.slack < s.cold + s.commit_interval:
        return ModeChoice(Mode.ON_DEMAND, message="spot does not start in time")
    stay = ModeChoice(Mode.SPOT, s.zone, "spot is kept until it is taken away")
    here = next((offer for offer in s.offers if offer.zone == s.zone), None)
    if here is None or s.slack < 2 * s.change + s.unsaved:
        return stay
    horizon = min(s.remaining, here.lifetime)
    wasted = s.cold + s.unsaved
    for offer in _cheapest(s, [o for o in s.offers if o.up and o.zone != s.zone]):
        saved = (here.usd_hour - offer.usd_hour) * min(horizon, offer.lifetime)
        # Twice the cost of the move: prices are estimates, and a move that barely pays would be repeated in vain.
        if saved > 2 * wasted * offer.usd_hour:
            return ModeChoice(Mode.SPOT, offer.zone, f"{offer.zone} is so much cheaper that a move pays")
    return stay


def _on_demand(s: Situation) -> ModeChoice:
    """Leave on demand if spot is back, the slack allows it, and it pays."""
    stay = ModeChoice(Mode.ON_DEMAND, s.zone, "on demand is kept: the slack is needed")
    if s.slack < s.change + s.unsaved:
        return stay
    found = _best(s, "spot is back")
    if found is None or s.slack - s.unsaved < _reserve(s) * RETURN:
        return stay
    offer = next(o for o in s.offers if o.zone == found.zone)
    # Short lifetimes so far must not end the search for good: pauses between tries double, so tries stay cheap.
    saved = (s.on_demand_usd_hour - offer.usd_hour) * min(max(offer.lifetime, USUAL), s.remaining)
    # With overlap a refusal costs nothing, so only the gain of a grant counts.
    saved *= 1.0 if offer.up or s.overlaps else offer.available
    spent = offer.usd_hour * s.cold + s.on_demand_usd_hour * (s.cold + s.unsaved)
    return found if saved > spent else ModeChoice(Mode.ON_DEMAND, s.zone, "a move to spot would not pay")


def _idle(s: Situation) -> ModeChoice:
    """Take spot if it can be had; otherwise wait, or take on demand if waiting costs too much."""
    if s.slack < s.change:
        return ModeChoice(Mode.ON_DEMAND, message="the slack is nearly used up: on demand is safe")
    found = _best(s, "spot is to be had")
    if found is not None:
        return found
    wait = ModeChoice(Mode.WAIT, message="there is no spot, and there is time to wait")
    if s.slack < _reserve(s):
        return ModeChoice(Mode.ON_DEMAND, message="the slack left is needed for the changes to come")
    return wait


def _reserve(s: Situation) -> float:
    """Return the slack to keep, in seconds: one change, and one for each lifetime and gap still expected."""
    lifetime = max((offer.lifetime for offer in s.offers), default=0.0)
    cycle = max(lifetime + s.gap, 2 * s.change)
    # The worst case once, and the usual one for all others: half an interval, or nothing.
    return s.change + (s.cold + s.commit_interval / 2) * max(0.0, s.deadline - s.now) / cycle


def _best(s: Situation, message: str) -> ModeChoice | None:
    """Return the choice of the cheapest affordable zone not known to lack spot, or None."""
    found = next((offer for offer in _affordable(s) if offer.up is not False), None)
    return None if found is None else ModeChoice(Mode.SPOT, found.zone, f"{message} in {found.zone}")


def _worth(s: Situation, offer: Offer) -> float:
    """Return the USD per hour of progress, including the offer's share of cold starts and lost work."""
    # Never 0 or below: if nodes end before they work, the price would be infinite or negative.
    useful = max(0.05, (offer.lifetime - s.commit_interval / 2) / (offer.lifetime + s.cold))
    return offer.usd_hour / useful


def _cheapest(s: Situation, offers: "list[Offer] | tuple[Offer, ...]") -> list[Offer]:
    return sorted(offers, key=lambda offer: _worth(s, offer))


def _affordable(s: Situation) -> list[Offer]:
    """
    Return the cheapest offers that together are available often enough for the required progress.

    If the cheap ones are too rare, every offer below the on-demand price is affordable.
    """
    required = s.remaining / max(1.0, s.deadline - s.now - _reserve(s))
    missing, worthwhile, last = 1.0, list[Offer](), 0.0
    for offer in _cheapest(s, s.offers):
        price = _worth(s, offer)
        # Zones are treated as independent, which they are not quite; HEADROOM covers the difference.
        enough = (1.0 - missing) >= required * HEADROOM
        if price >= s.on_demand_usd_hour or (enough and price > 1.02 * last):
            break
        worthwhile.append(offer)
        missing *= 1.0 - offer.available
        last = price
    return worthwhile
