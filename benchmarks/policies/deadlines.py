"""
Jobs with a deadline, tick by tick: what other policies run them on, what it costs, and whether it is in time.

Each tick a policy says what to run on; a zone that turns out to be down is answered within the tick. A change
stops the work while the next machine is created and boots; only the second is paid. All policies share one
safety net: when the time left is nearly that of a start and the work left, it is on demand to the end.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from math import ceil

from benchmarks.policies.trace import Trace

WAIT, DEMAND = -1, -2
"""What a policy says beside the number of a zone."""


@dataclass
class DeadlineJob:
    """
    Hold a job under way, and what its policy has learned of each zone by asking.

    *asked* has all answers, *taken* how many of them were yes, *ended* how often no followed yes.
    """

    trace: Trace
    first: int
    ticks: int
    work: int
    create: float
    boot: float
    now: int = 0
    done: float = 0.0
    at: int = WAIT
    starting: int = 0
    cost: float = 0.0
    lost: int = WAIT
    asked: dict[int, list[bool]] = field(default_factory=dict)
    taken: dict[int, int] = field(default_factory=dict)
    ended: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        span = slice(self.first, self.first + self.ticks)
        self._up: list[list[bool]] = self.trace.up[:, span].tolist()
        self._price: list[list[float]] = self.trace.price[:, span].tolist()
        start = (self.create + self.boot) / self.trace.tick
        self.cold = ceil(start)
        # A start ends within a tick: the rest of it is work.
        self.rest = self.cold - start
        self.paid = (self.boot / self.trace.tick + self.rest) / self.cold

    @property
    def slack(self) -> float:
        """Return how many ticks may pass without work."""
        return self.ticks - self.now - (self.work - self.done)

    def price(self, zone: int) -> float:
        """Return the price of a zone now, in USD an hour."""
        return self._price[zone][self.now]

    def up(self, zone: int) -> bool:
        """Return whether a zone has a machine now."""
        return self._up[zone][self.now]

    def ask(self, zone: int) -> bool:
        """Ask for a machine in a zone, and remember the answer."""
        up, answers = self.up(zone), self.asked.setdefault(zone, [])
        self.taken[zone] = self.taken.get(zone, 0) + up
        self.ended[zone] = self.ended.get(zone, 0) + (bool(answers) and answers[-1] and not up)
        answers.append(up)
        return up

    def first_up(self, zones: list[int]) -> int | None:
        """Ask one zone after the other; return the first that gives a machine."""
        return next((zone for zone in zones if self.ask(zone)), None)

    def share(self, zone: int, last: int) -> float:
        """Return how many of the last requests in a zone were taken; nothing is known of a zone not asked."""
        answers = self.asked.get(zone, [])[-last:]
        return sum(answers) / len(answers) if answers else 1.0


Chooser = Callable[[DeadlineJob], int]


def finish(job: DeadlineJob, chooser: Chooser) -> DeadlineJob:
    """Run a job to its end or its deadline."""
    hours = job.trace.tick / 3600
    while job.done < job.work and job.now < job.ticks:
        if job.at >= 0 and not job.up(job.at):
            job.lost, job.at = job.at, WAIT
        target = chooser(job)
        if target != job.at:
            job.at, job.starting = target, 0 if target == WAIT else job.cold
        if job.at != WAIT:
            usd_hour = job.trace.on_demand if job.at == DEMAND else job.price(job.at)
            job.cost += hours * usd_hour * (job.paid if job.starting else 1.0)
        if job.starting:
            job.starting -= 1
            job.done += 0.0 if job.starting else job.rest
        elif job.at != WAIT:
            job.done += 1.0
        job.now += 1
    return job


def netted(rule: Chooser) -> Chooser:
    """Return a rule with the safety net under it."""

    def chosen(job: DeadlineJob) -> int:
        # Not only without a machine: a move for the money's sake may end in nothing, too.
        tight = job.slack < 2 * job.cold + (job.at == DEMAND)
        if tight:
            return job.at if job.at >= 0 else DEMAND
        return rule(job)

    return chosen


def greedy(job: DeadlineJob) -> int:
    """Stay on any spot, take the cheapest that is up, else wait."""
    if job.at >= 0:
        return job.at
    found = job.first_up(cheapest(job))
    return WAIT if found is None else found


def uniform(sort: Callable[[DeadlineJob], list[int]]) -> Chooser:
    """Return Uniform Progress (Can't Be Late): hold spot, and never fall behind a straight line."""

    def chosen(job: DeadlineJob) -> int:
        per_tick = job.work / job.ticks
        if job.at >= 0 or (job.at == DEMAND and job.done < (job.now + 2 * job.cold) * per_tick):
            return job.at
        found = job.first_up(sort(job))
        if found is not None:
            return found
        return DEMAND if job.at == DEMAND or job.done < job.now * per_tick else WAIT

    return chosen


def cheapest(job: DeadlineJob) -> list[int]:
    """Return the zones by price."""
    return sorted(range(len(job.trace.zones)), key=job.price)


def elsewhere_first(job: DeadlineJob) -> list[int]:
    """Return the zones by price, those of the region that was lost last."""
    lost = job.trace.zones[job.lost][:-1] if job.lost >= 0 else ""
    return sorted(cheapest(job), key=lambda zone: job.trace.zones[zone][:-1] == lost)


def likeliest(job: DeadlineJob) -> list[int]:
    """Return the zones by how many of their last five requests were taken."""
    return sorted(cheapest(job), key=lambda zone: -job.share(zone, 5))


def worthiest(job: DeadlineJob) -> list[int]:
    """Return the zones by that share for each dollar."""
    return sorted(cheapest(job), key=lambda zone: -job.share(zone, 5) / job.price(zone))


def skynomad(job: DeadlineJob) -> int:
    """
    Move to the zone of the best utility: work at the price of on demand, less cold starts, less the price.

    After SkyNomad (arXiv 2601.06520), but rough: mean lifetimes stand for its survival analysis, and work has one
    value at all times. Every zone is probed every two hours, for nothing.
    """
    probe = max(1, int(7200 / job.trace.tick))
    zones = range(len(job.trace.zones))
    if job.now % probe == 0:
        for zone in zones:
            job.ask(zone)
    value = job.trace.on_demand

    def worth(zone: int) -> float:
        lifetime = (job.taken.get(zone, 1) * probe + probe) / (job.ended.get(zone, 0) + 0.5)
        moving = 0.0 if zone == job.at else job.cold / max(lifetime, job.cold)
        return value * (1.0 - moving) - job.price(zone)

    known = [zone for zone in zones if job.at < 0 or zone == job.at or job.asked[zone][-1]]
    best = sorted(known, key=lambda zone: -worth(zone))
    for zone in best:
        if worth(zone) > 0 and (zone == job.at or job.ask(zone)):
            return zone
    return job.at if job.at == DEMAND else WAIT


CHOOSERS: dict[str, Chooser] = {
    "greedy": netted(greedy),
    "Uniform Progress, other regions first": netted(uniform(elsewhere_first)),
    "Uniform Progress, likeliest zone": netted(uniform(likeliest)),
    "Uniform Progress, likeliest for the price": netted(uniform(worthiest)),
    "SkyNomad-like": netted(skynomad),
}
