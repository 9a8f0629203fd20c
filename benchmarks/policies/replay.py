"""Replays: which policies meet which markets, side by side on all cores, and what came of it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from multiprocessing import get_context
from random import Random

from benchmarks.policies import ours, peers
from benchmarks.policies.bound import most_retained
from benchmarks.policies.ledger import INTERVALS, ReplayLedger, ReplayRecovery
from benchmarks.policies.market import Latency, Market, Stress
from benchmarks.policies.trace import Trace

PolicyRun = Callable[[ReplayLedger, Random], object]


@dataclass(frozen=True)
class Policy:
    """Name a policy. *each*: it uses one zone, or all. *noticed*: the job saves on a notice."""

    name: str
    run: PolicyRun
    each: str = "all"
    noticed: bool = False


RACE = "tpuctl race"
NO_NOTICE = f"{RACE}, without notices"
POLICIES = (
    Policy("2020 design (cron, one zone)", peers.cron, "zone"),
    Policy("tpunicorn 0.5.5 as written, one zone", partial(peers.tpunicorn, retry=False), "zone"),
    Policy("tpunicorn with retries, one zone", partial(peers.tpunicorn, retry=True), "zone"),
    Policy("levanter's script, one zone", peers.levanter, "zone"),
    Policy("SkyPilot FAILOVER", partial(peers.skypilot, eager=False)),
    Policy("SkyPilot EAGER_NEXT_REGION", partial(peers.skypilot, eager=True)),
    Policy("EAGER_NEXT_REGION, job saves on notice", partial(peers.skypilot, eager=True), noticed=True),
    Policy("dstack", peers.dstack),
    Policy("tpuctl failover", partial(ours.tpuctl, strategy="failover"), noticed=True),
    Policy(NO_NOTICE, partial(ours.tpuctl, strategy="race")),
    Policy(RACE, partial(ours.tpuctl, strategy="race"), noticed=True),
)


BY_NAME = {policy.name: policy for policy in POLICIES}
SEEDS = 3
AUTO = ", every: auto"
"""What is added to the name of a policy of ours for the row in which its job saves with `every: auto`."""

SWIFT = f"{NO_NOTICE}{AUTO}, async saves"


@dataclass(frozen=True)
class Replay:
    """Name one replay: a policy in a market."""

    policy: str
    trace: Trace
    latency: Latency
    stress: Stress | None
    seed: int
    lived: tuple[float, ...] = ()


@dataclass
class ReplayResult:
    """
    Hold what came of replays, added up. *automatic*, *swift*, *free* and *fixed* are as in `ReplayLedger`.

    *parts* holds what each replay alone kept, as a share of its wall-clock time.
    """

    wall: float = 0.0
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
    parts: list[float] = field(default_factory=list)

    def add(self, other: "ReplayResult") -> None:
        """Add the result of other replays."""
        for name in SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.fixed = [a + b for a, b in zip(self.fixed, other.fixed, strict=True)]
        self.recoveries += other.recoveries
        self.parts += other.parts

    @property
    def usd_hour(self) -> float:
        """Return what an hour of kept progress costs."""
        return self.usd / self.useful * 3600 if self.useful else float("nan")

    def instead(self, useful: float) -> "ReplayResult":
        """Return the same machines with a job that saves at other times and so has *useful* seconds."""
        parts = [part * useful / self.useful if self.useful else 0.0 for part in self.parts]
        return replace(self, useful=useful, parts=parts)

    def delay(self, share: float) -> float:
        """Return the policy-added delay that a share of the recoveries stayed below, in seconds."""
        ordered = sorted(one.delay for one in self.recoveries)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


SUMS = ("wall", "useful", "automatic", "swift", "free", "paid", "usd", "creates", "used", "waited", "soonest")


def groups(trace: Trace, each: str) -> list[tuple[int, ...]]:
    """Return the zones that one deployment may use: each one alone, or all."""
    zones = range(len(trace.zones))
    if each == "zone":
        return [(zone,) for zone in zones]
    return [tuple(zones)]


def run_replay(replay: Replay) -> ReplayResult:
    """Let a policy run in a market; one that uses a part of the zones runs in each part."""
    policy, total = BY_NAME[replay.policy], ReplayResult()
    for part in groups(replay.trace, policy.each):
        market = Market(replay.trace.only(*part), replay.latency, replay.stress, replay.seed, replay.lived)
        ledger = ReplayLedger(market, noticed=policy.noticed, by_save_interval=policy.name.startswith(RACE))
        policy.run(ledger, Random(f"{replay.seed} {part}"))
        one = ReplayResult(market.end, recoveries=ledger.recoveries, fixed=ledger.fixed)
        for name in SUMS[1:]:
            setattr(one, name, getattr(ledger, name))
        total.add(one)
    total.parts = [total.useful / total.wall]
    return total


def windows(trace: Trace, hours: float | None, seeds: int = SEEDS) -> list[Trace]:
    """Cut a part out of a record for each seed, so that each meets another time: at most *hours* long."""
    ticks = int(trace.up.shape[1]) // seeds
    length = ticks if hours is None else min(ticks, int(hours * 3600 / trace.tick))
    return [trace.cut(seed * ticks, length) for seed in range(seeds)]


@dataclass(frozen=True)
class PolicyComparison:
    """Name a market and the policies that are to meet there."""

    title: str
    trace: Trace
    policies: Sequence[str]
    hours: float | None = None
    latency: Latency = field(default_factory=Latency)
    stress: Stress | None = None
    seeds: int = SEEDS
    lived: tuple[float, ...] = ()

    def replays(self) -> list[Replay]:
        """Return the replays of this comparison."""
        parts = windows(self.trace, self.hours, self.seeds)
        return [
            Replay(name, part, self.latency, self.stress, seed, self.lived)
            for name in self.policies
            for seed, part in enumerate(parts)
        ]


@dataclass(frozen=True)
class ComparisonResult:
    """Hold what came of a comparison; *bound* is the share of time that one who knows the future could keep."""

    comparison: PolicyComparison
    bound: float
    bounds: list[float]
    by_policy: dict[str, ReplayResult]

    def useful(self, name: str) -> float:
        """Return the share of wall-clock time that a policy turned into progress."""
        return self.by_policy[name].useful / self.by_policy[name].wall

    def reached(self, name: str) -> float:
        """Return the same as a share of the bound."""
        return self.useful(name) / self.bound

    def between(self, name: str) -> tuple[float, float]:
        """Return the same of the worst and of the best part alone."""
        shares = [part / most for part, most in zip(self.by_policy[name].parts, self.bounds, strict=True)]
        return min(shares), max(shares)


def play(comparisons: Sequence[PolicyComparison], jobs: int) -> list[ComparisonResult]:
    """Play all comparisons, their replays side by side."""
    replays = [replay for comparison in comparisons for replay in comparison.replays()]
    done = iter(replay_all(replays, jobs))
    results = []
    for comparison in comparisons:
        sums = {name: ReplayResult() for name in comparison.policies}
        for replay in comparison.replays():
            sums[replay.policy].add(next(done))
        automatic = {
            f"{name}{AUTO}": one.instead(one.automatic) for name, one in sums.items() if name.startswith(RACE)
        }
        if NO_NOTICE in sums:
            automatic[SWIFT] = sums[NO_NOTICE].instead(sums[NO_NOTICE].swift)
        parts = windows(comparison.trace, comparison.hours, comparison.seeds)
        most = [most_retained(part, comparison.latency) for part in parts]
        bounds = [useful / part.seconds for useful, part in zip(most, parts, strict=True)]
        whole = sum(most) / sum(part.seconds for part in parts)
        results.append(ComparisonResult(comparison, whole, bounds, {**sums, **automatic}))
    return results


def replay_all(replays: Sequence[Replay], jobs: int) -> list[ReplayResult]:
    """Run replays side by side, the longest first; results come in the order of *replays*."""
    order = sorted(range(len(replays)), key=lambda i: -_weight(replays[i]))
    if jobs == 1:
        done = [run_replay(replays[i]) for i in order]
    else:
        with get_context("fork").Pool(jobs) as pool:
            done = pool.map(run_replay, [replays[i] for i in order], chunksize=1)
    return [result for _, result in sorted(zip(order, done, strict=True), key=lambda pair: pair[0])]


def _weight(replay: Replay) -> float:
    """Return how long a replay takes, roughly: ours runs the real loop, and a stockout makes many passes."""
    down = 1.0 - float(replay.trace.up.mean())
    return replay.trace.seconds * (50.0 if replay.policy.startswith("tpuctl") else 1.0) * (0.1 + down)
