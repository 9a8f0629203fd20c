"""
Spot or on demand: how to finish in time for the least money.

`choose(situation) -> Choice` is all there is to know from outside. It is pure and looks only at
what was observed until now. The engine asks it in each pass, the replay over traces at each tick.

Words: *slack* is the time to the deadline less the work that is left. It stays the same while a job makes
progress and shrinks in every other second. *cold* is the time from asking for a node to its first new
step, *loss* the most work that a sudden end throws away: one checkpoint interval.

The policy: it waits as long as the slack is not needed for changes that are still to come, then takes
on demand in each gap and leaves it when spot is back. It takes only offers whose price the pace allows.

The safety net is what makes a deadline safe: without a node, and with a slack below two cold starts and one
loss, the next node is on demand and it is kept.
"""

from dataclasses import dataclass
from enum import Enum

HEADROOM = 1.25
"""How much more spot time than needed must be in sight before more expensive offers are turned down."""
USUAL = 4 * 3600.0
"""Seconds that spot is held to last at least when it is asked for from on demand."""
RETURN = 1 / 3
"""The part of the reserve that must be left for going back to spot: not all of it, so nothing flutters."""


class Mode(Enum):
    """Name what a job runs on; WAIT is nothing."""

    SPOT = "spot"
    ON_DEMAND = "on-demand"
    WAIT = "wait"


@dataclass(frozen=True)
class Offer:
    """
    Describe spot capacity at one place.

    *up* says whether a node can be had now, None when nobody has asked lately. *share* is how often one
    could be had, *life* how many seconds a node that is taken now will last; both are learned so far.
    """

    place: str
    usd_hour: float
    up: bool | None = None
    share: float = 0.5
    life: float = 4 * 3600.0


@dataclass(frozen=True)
class Situation:
    """
    Hold what a choice depends on; times in seconds, *done* and *work* in seconds of work.

    *done* counts what a complete checkpoint has, *unsaved* what a change would lose. *mode* and *place*
    are what the job has now, also while it starts. *gap* is how long no spot is to be had, on average.
    *starting* says that what it has now has not begun to work, *overlaps* that it works on while spot is asked for.
    """

    now: float
    began: float
    deadline: float
    work: float
    done: float
    cold: float
    loss: float
    on_demand_usd_hour: float
    offers: tuple[Offer, ...]
    mode: Mode = Mode.WAIT
    place: str = ""
    unsaved: float = 0.0
    gap: float = 3600.0
    starting: bool = False
    overlaps: bool = False

    @property
    def remaining(self) -> float:
        """Return the work that is left."""
        return max(0.0, self.work - self.done)

    @property
    def slack(self) -> float:
        """Return the time that may pass without progress."""
        return self.deadline - self.now - self.remaining

    @property
    def change(self) -> float:
        """Return the slack that one spot node costs which ends suddenly, with the start that follows it."""
        return 2 * self.cold + self.loss


@dataclass(frozen=True)
class ModeChoice:
    """Say what to run on next, and why; the same mode and place as now mean: change nothing."""

    mode: Mode
    place: str = ""
    why: str = ""


def choose(situation: Situation) -> ModeChoice:
    """Return what the job should run on from now on."""
    if situation.remaining <= 0:
        return ModeChoice(Mode.WAIT, why="all the work is done")
    if situation.mode is Mode.SPOT:
        return _hold(situation)
    if situation.mode is Mode.ON_DEMAND:
        return _on_demand(situation)
    return _idle(situation)


def share_of(granted: float, asked: float) -> float:
    """Return how often spot can be had where *granted* of *asked* nodes were given; unknown is a half."""
    # Laplace's rule: one grant or refusal alone must make nothing certain.
    return (granted + 1.0) / (asked + 2.0)


def life_of(seconds: float, ends: float) -> float:
    """Return how long a node will last where *ends* came in *seconds* of use; unknown is four hours."""
    return (seconds + 2 * 3600.0) / (ends + 0.5)


def on_time(situation: Situation) -> str:
    """Return the forecast: "on time", "at risk" when one more sudden end is too many, or "cannot be met"."""
    starting = situation.cold if situation.mode is Mode.WAIT else 0.0
    if situation.slack < starting:
        return "cannot be met"
    sudden = situation.cold + situation.loss if situation.mode is Mode.SPOT else starting
    return "at risk" if situation.slack < sudden else "on time"


def _hold(s: Situation) -> ModeChoice:
    """
    Keep a spot node until it is taken: leaving it costs a cold start for certain.

    It moves on only when another place is so much cheaper that the move pays for itself.
    """
    if s.starting and s.slack < s.cold + s.loss:
        return ModeChoice(Mode.ON_DEMAND, why="spot does not start in time")
    stay = ModeChoice(Mode.SPOT, s.place, "spot is kept until it is taken away")
    here = next((offer for offer in s.offers if offer.place == s.place), None)
    if here is None or s.slack < 2 * s.change + s.unsaved:
        return stay
    horizon = min(s.remaining, here.life)
    wasted = s.cold + s.unsaved
    for offer in _cheapest(s, [o for o in s.offers if o.up and o.place != s.place]):
        saved = (here.usd_hour - offer.usd_hour) * min(horizon, offer.life)
        # Twice the cost of the move: prices are estimates, and a move that only
        # just pays is repeated for nothing.
        if saved > 2 * wasted * offer.usd_hour:
            return ModeChoice(Mode.SPOT, offer.place, f"{offer.place} is so much cheaper that a move pays")
    return stay


def _on_demand(s: Situation) -> ModeChoice:
    """Leave on demand when spot is back, the slack can bear it, and it pays."""
    stay = ModeChoice(Mode.ON_DEMAND, s.place, "on demand is kept: the slack is needed")
    if s.slack < s.change + s.unsaved:
        return stay
    found = _best(s, "spot is back")
    if found is None or s.slack - s.unsaved < _reserve(s) * RETURN:
        return stay
    offer = next(o for o in s.offers if o.place == found.place)
    # Short lives so far are no reason never to look again: the pauses between tries double, so they stay cheap.
    saved = (s.on_demand_usd_hour - offer.usd_hour) * min(max(offer.life, USUAL), s.remaining)
    # Where a refusal costs nothing, only what a grant brings counts.
    saved *= 1.0 if offer.up or s.overlaps else offer.share
    spent = offer.usd_hour * s.cold + s.on_demand_usd_hour * (s.cold + s.unsaved)
    return found if saved > spent else ModeChoice(Mode.ON_DEMAND, s.place, "a move to spot would not pay")


def _idle(s: Situation) -> ModeChoice:
    """Take spot where it is to be had; without it wait, or take on demand when waiting costs too much."""
    if s.slack < s.change:
        return ModeChoice(Mode.ON_DEMAND, why="the slack is nearly used up: on demand is safe")
    found = _best(s, "spot is to be had")
    if found is not None:
        return found
    wait = ModeChoice(Mode.WAIT, why="there is no spot, and there is time to wait")
    if s.slack < _reserve(s):
        return ModeChoice(Mode.ON_DEMAND, why="the slack left is needed for the changes to come")
    return wait


def _reserve(s: Situation) -> float:
    """Return the slack to keep: one change, and one for each life and gap that the time left will bring."""
    life = max((offer.life for offer in s.offers), default=0.0)
    cycle = max(life + s.gap, 2 * s.change)
    # The worst once, and what is usual for all that are to come: half of an interval is lost, or nothing.
    return s.change + (s.cold + s.loss / 2) * max(0.0, s.deadline - s.now) / cycle


def _best(s: Situation, why: str) -> ModeChoice | None:
    """Return the choice of the cheapest affordable zone that is not known to be without spot, or None."""
    found = next((offer for offer in _affordable(s) if offer.up is not False), None)
    return None if found is None else ModeChoice(Mode.SPOT, found.place, f"{why} in {found.place}")


def _worth(s: Situation, offer: Offer) -> float:
    """Return the price of an hour of progress: its share of cold starts and lost work is paid as well."""
    # Never 0 or below: where TPUs go before they have worked the price would be infinite, or negative.
    useful = max(0.05, (offer.life - s.loss / 2) / (offer.life + s.cold))
    return offer.usd_hour / useful


def _cheapest(s: Situation, offers: "list[Offer] | tuple[Offer, ...]") -> list[Offer]:
    return sorted(offers, key=lambda offer: _worth(s, offer))


def _affordable(s: Situation) -> list[Offer]:
    """
    Return the cheapest offers that together are there often enough for the pace that is needed.

    Whatever costs less than on demand is affordable when the cheap ones are too rare.
    """
    pace = s.remaining / max(1.0, s.deadline - s.now - _reserve(s))
    missing, worthwhile, last = 1.0, list[Offer](), 0.0
    for offer in _cheapest(s, s.offers):
        price = _worth(s, offer)
        # As if zones were independent: they are not quite, which is what HEADROOM is for.
        enough = (1.0 - missing) >= pace * HEADROOM
        if price >= s.on_demand_usd_hour or (enough and price > 1.02 * last):
            break
        worthwhile.append(offer)
        missing *= 1.0 - offer.share
        last = price
    return worthwhile
