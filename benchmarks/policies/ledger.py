"""The account of one replay: what was kept, what was paid, and how long recoveries took."""

from dataclasses import dataclass, field, replace

from benchmarks.policies.market import Market
from orchestrator.contract.interval import UNKNOWN_ZONE, WorkPeriod, ZonePreemptions

ASYNCHRONOUS = 0.5
"""Seconds for which a save stops the training that another thread writes: a scenario, not a measurement."""
INTERVALS = (60.0, 100.0, 150.0, 200.0, 250.0, 300.0, 400.0, 600.0, 900.0, 1800.0, 3600.0)
"""Seconds between two saves, of which the best is chosen in hindsight."""


@dataclass(frozen=True)
class ReplayRecovery:
    """
    Hold what came between a preemption and the next first step.

    *delay* is what the policy added, in seconds; *taken* how many machines that were asked for meanwhile were
    taken away while they were being created.
    """

    delay: float
    taken: int = 0


@dataclass
class ReplayLedger:
    """
    Collect what a policy does in a market.

    *useful* is with a save each `every` seconds. With *by_save_interval* also what the same machines would have
    kept: *automatic* with `every: auto`, *swift* with that and asynchronous saves, *free* if saves take no time and
    no work were lost, *fixed* with a save each INTERVALS seconds. *used* counts machines whose job made a step.
    """

    market: Market
    noticed: bool = False
    by_save_interval: bool = True
    useful: float = 0.0
    automatic: float = 0.0
    swift: float = 0.0
    free: float = 0.0
    fixed: list[float] = field(default_factory=lambda: [0.0] * len(INTERVALS))
    paid: float = 0.0
    usd: float = 0.0
    creates: int = 0
    used: int = 0
    waited: float = 0.0
    soonest: float = 0.0
    recoveries: list[ReplayRecovery] = field(default_factory=list)
    lost_at: float | None = None
    periods: list[WorkPeriod] = field(default_factory=list)
    zones: dict[int, ZonePreemptions] = field(default_factory=dict)
    taken: int = 0

    @property
    def delays(self) -> list[float]:
        """Return what the policy added to each recovery."""
        return [one.delay for one in self.recoveries]

    def ask(self, zone: int, at: float) -> tuple[bool, float, float]:
        """Ask the market for a machine, and count it."""
        self.creates += at < self.market.end
        answer = self.market.ask(zone, at)
        self.taken += not answer[0] and answer[1] - at != self.market.latency.refuse
        return answer

    def lifetime(
        self,
        zone: int,
        ready: float,
        death: float,
        *,
        first_step: float | None = None,
        stop: float | None = None,
        spot: bool = True,
    ) -> float:
        """
        Book a machine: paid from READY to death or *stop*, stepping from *first_step* on. Return what is kept.

        One that the policy stops before its notice loses what was not saved.
        """
        latency, end = self.market.latency, self.market.end
        ready, death = min(ready, end), min(death, end)
        stop = death if stop is None else min(stop, end)
        first = ready + latency.push + latency.restore if first_step is None else first_step
        self._pay(zone, ready, stop, spot=spot)
        if self.lost_at is not None and self.market.stressed:
            self.waited += ready - self.lost_at
            self.soonest += self.market.soonest(self.lost_at) - self.lost_at
        noticed = spot and self.noticed and stop >= death - latency.notice
        until = death - latency.notice if noticed else min(stop, death)
        if first >= min(stop, death):
            return 0.0
        self.used += 1
        useful = _survives(latency.worked(first, until), last=noticed)
        self.useful += useful
        if self.by_save_interval:
            self._book_intervals(first, until, zone, last=noticed)
        known = self.zones.get(zone, UNKNOWN_ZONE)
        self.zones[zone] = ZonePreemptions(known.lived + min(stop, death) - ready, known.preemptions + 1)
        self.periods.append(WorkPeriod(max(0.0, until - first), lost=not noticed))
        if self.lost_at is not None:
            without = self.market.without_capacity(self.lost_at, first - latency.floor)
            self.recoveries.append(ReplayRecovery(first - self.lost_at - latency.floor - without, self.taken))
        self.lost_at, self.taken = death if noticed else min(stop, death), 0
        return useful

    def _book_intervals(self, first: float, until: float, zone: int, *, last: bool) -> None:
        """Book what other save intervals would have kept of a machine."""
        latency, known = self.market.latency, self.zones.get(zone, UNKNOWN_ZONE)
        swift = replace(latency, save=ASYNCHRONOUS)
        self.free += until - first
        self.automatic += _survives(latency.worked_with_auto(first, until, self.periods, known), last=last)
        self.swift += _survives(swift.worked_with_auto(first, until, self.periods, known), last=last)
        for number, every in enumerate(INTERVALS):
            self.fixed[number] += _survives(replace(latency, every=every).worked(first, until), last=last)

    def spare(self, zone: int, ready: float, stop: float, *, spot: bool = True) -> None:
        """Book a machine that was paid for and never used."""
        self._pay(zone, min(ready, self.market.end), min(stop, self.market.end), spot=spot)

    def _pay(self, zone: int, ready: float, stop: float, *, spot: bool) -> None:
        if stop > ready:
            self.paid += stop - ready
            full = self.market.trace.on_demand * (stop - ready) / 3600
            self.usd += self.market.usd(zone, ready, stop) if spot else full


def _survives(work: tuple[float, float], *, last: bool) -> float:
    """Return the seconds of training that outlive a machine: what was saved, and the rest after a *last* save."""
    return sum(work) if last else work[0]
