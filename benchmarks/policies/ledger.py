"""The account of one replay: what was kept, what was paid, and how long recoveries took."""

from dataclasses import dataclass, field

from benchmarks.policies.market import Market


@dataclass
class Ledger:
    """Collect what a policy does in a market."""

    market: Market
    noticed: bool = False
    kept: float = 0.0
    paid: float = 0.0
    idle: float = 0.0
    creates: int = 0
    accepted: int = 0
    waited: float = 0.0
    soonest: float = 0.0
    delays: list[float] = field(default_factory=list)
    lost_at: float | None = None

    def ask(self, zone: int, at: float) -> tuple[bool, float, float]:
        """Ask the market for a machine, and count it."""
        self.creates += at < self.market.end
        answer = self.market.ask(zone, at)
        self.accepted += answer[0]
        return answer

    def life(
        self, ready: float, death: float, *, first_step: float | None = None, stop: float | None = None
    ) -> None:
        """Book a machine: paid from READY to death or *stop*, stepping from *first_step* on."""
        latency, end = self.market.latency, self.market.end
        ready, stop = min(ready, end), min(death if stop is None else stop, end)
        first = ready + latency.push + latency.restore if first_step is None else first_step
        self.paid += stop - ready
        if self.lost_at is not None and self.market.stressed:
            self.waited += ready - self.lost_at
            self.soonest += self.market.soonest(self.lost_at) - self.lost_at
        if first >= min(death, end):
            return
        self.kept += latency.kept(first, min(death, end), noticed=self.noticed)
        self.idle += max(0.0, stop - death)
        if self.lost_at is not None:
            without = self.market.without_capacity(self.lost_at, first - latency.floor)
            self.delays.append(first - self.lost_at - latency.floor - without)
        self.lost_at = death

    def spare(self, ready: float, stop: float) -> None:
        """Book a machine that was paid for and never used."""
        self.paid += max(0.0, min(stop, self.market.end) - min(ready, self.market.end))
