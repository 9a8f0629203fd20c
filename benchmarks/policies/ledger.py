"""The account of one replay: what was kept, what was paid, and how long recoveries took."""

from dataclasses import dataclass, field

from benchmarks.policies.market import Market
from orchestrator.contract.interval import UNKNOWN_ZONE, Life, ZoneLives


@dataclass(frozen=True)
class Recovery:
    """
    Hold what came between a loss and the next first step.

    *delay* is what the policy added, in seconds; *taken* how many machines that were asked for meanwhile were
    taken away while they were being created.
    """

    delay: float
    taken: int = 0


@dataclass
class Ledger:
    """
    Collect what a policy does in a market.

    *kept* is with a save each `every` seconds, *paced* what the same machines would have kept with `every: auto`.
    *used* counts machines whose job made a step.
    """

    market: Market
    noticed: bool = False
    kept: float = 0.0
    paced: float = 0.0
    paid: float = 0.0
    usd: float = 0.0
    creates: int = 0
    used: int = 0
    waited: float = 0.0
    soonest: float = 0.0
    recoveries: list[Recovery] = field(default_factory=list)
    lost_at: float | None = None
    lives: list[Life] = field(default_factory=list)
    zones: dict[int, ZoneLives] = field(default_factory=dict)
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

    def life(
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
        told = spot and self.noticed and stop >= death - latency.notice
        until = death - latency.notice if told else min(stop, death)
        if first >= min(stop, death):
            return 0.0
        self.used += 1
        saved, unsaved = latency.worked(first, until)
        kept = saved + (unsaved if told else 0.0)
        self.kept += kept
        known = self.zones.get(zone, UNKNOWN_ZONE)
        saved, unsaved = latency.paced(first, until, self.lives, known)
        self.paced += saved + (unsaved if told else 0.0)
        self.zones[zone] = ZoneLives(known.lived + min(stop, death) - ready, known.losses + 1)
        self.lives.append(Life(max(0.0, until - first), lost=not told))
        if self.lost_at is not None:
            without = self.market.without_capacity(self.lost_at, first - latency.floor)
            self.recoveries.append(Recovery(first - self.lost_at - latency.floor - without, self.taken))
        self.lost_at, self.taken = death if told else min(stop, death), 0
        return kept

    def spare(self, zone: int, ready: float, stop: float, *, spot: bool = True) -> None:
        """Book a machine that was paid for and never used."""
        self._pay(zone, min(ready, self.market.end), min(stop, self.market.end), spot=spot)

    def _pay(self, zone: int, ready: float, stop: float, *, spot: bool) -> None:
        if stop > ready:
            self.paid += stop - ready
            full = self.market.trace.on_demand * (stop - ready) / 3600
            self.usd += self.market.usd(zone, ready, stop) if spot else full
