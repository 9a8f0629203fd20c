"""Deadlines in a run: which jobs are replayed, from where, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing import get_context
from random import Random
from statistics import mean

from benchmarks.policies import ours
from benchmarks.policies.cost_bound import least_costs
from benchmarks.policies.deadlines import CHOOSERS, DeadlineJob, finish
from benchmarks.policies.ledger import ReplayLedger
from benchmarks.policies.market import Latency, Market
from benchmarks.policies.table import table
from benchmarks.policies.trace import SETS, Trace

STARTS = 12
"""Starts of each job, evenly spread: more would overlap, and say the same again."""
FREE_SAVES = replace(Latency(), save=0.0)
"""What all policies meet here: saves take no time, since the other rules and the least cost know of none."""
OURS = "tpuctl"


@dataclass(frozen=True)
class Contract:
    """Name a job: hours of work, and how many times as long it may take."""

    title: str
    trace: Trace
    work: float
    stretch: float

    @property
    def ticks(self) -> tuple[int, int]:
        """Return deadline and work in ticks."""
        hour = 3600 / self.trace.tick
        return int(self.work * self.stretch * hour), int(self.work * hour)

    def starts(self, number: int = STARTS) -> list[int]:
        """Return the first ticks of *number* starts, evenly spread over the record."""
        last = int(self.trace.up.shape[1]) - self.ticks[0]
        if last < 0:
            raise ValueError(f"{self.title}: the record is shorter than the deadline")
        return sorted({round(last * i / max(1, number - 1)) for i in range(number)})


@dataclass(frozen=True)
class DueResult:
    """Hold what came of one job: its cost as a multiple of the least possible, and whether it was in time."""

    cost: float
    in_time: bool


def contracts() -> list[Contract]:
    """Return the jobs of a run."""
    # In parts, so that a start takes little more than itself when it is rounded up to whole ticks.
    nine, gang = SETS["v100"](), SETS["gang16"]().fine(3)
    return [
        Contract("nine zones, 1.5", nine, 100, 1.5),
        Contract("nine zones, 1.2", nine, 100, 1.2),
        Contract("nine zones, 1.1", nine, 100, 1.1),
        Contract("one region, 1.2", nine.only(6, 7, 8), 100, 1.2),
        Contract("one zone (us-east-2b), 1.5", nine.only(5), 100, 1.5),
        Contract("16 at once, 1.5", gang, 60, 1.5),
        Contract("16 at once, 1.2", gang, 60, 1.2),
    ]


def from_starts(contract: Contract, starts: Sequence[int]) -> list[dict[str, DueResult]]:
    """Let every policy do the job from several starts, and set what it costs against the least."""
    (ticks, work), wait = contract.ticks, FREE_SAVES
    boot = wait.push + wait.restore
    least = least_costs(contract.trace, starts, ticks, work, wait.create, boot)
    found = []
    for start, cost in zip(starts, least, strict=True):
        jobs = {
            name: finish(DeadlineJob(contract.trace, start, ticks, work, wait.create, boot), rule)
            for name, rule in CHOOSERS.items()
        }
        done = {name: DueResult(job.cost / cost, job.done >= work) for name, job in jobs.items()}
        found.append({**done, OURS: by_product(contract, start, cost)})
    return found


def by_product(contract: Contract, start: int, least: float) -> DueResult:
    """Let the product do the job: its real loop, which is told neither lifetimes nor availability."""
    ticks, work = contract.ticks
    seconds = int(work * contract.trace.tick)
    ledger = ReplayLedger(Market(contract.trace.cut(start, ticks), FREE_SAVES), noticed=True)
    cloud = ours.tpuctl(ledger, Random(start), strategy="race", work=seconds)
    return DueResult(ledger.usd / least, cloud.finished)


def fulfil(contract: Contract, jobs: int) -> list[dict[str, DueResult]]:
    """Return what came of every start."""
    starts = contract.starts()
    with get_context("fork").Pool(jobs) as pool:
        parts = pool.map(
            partial(from_starts, contract), [starts[i : i + 3] for i in range(0, len(starts), 3)]
        )
    return [one for part in parts for one in part]


def due_table(every: Sequence[Contract], found: Sequence[Sequence[dict[str, DueResult]]]) -> str:
    """Return cost and misses of every policy for every job."""
    rows = [
        (
            name,
            *(f"{mean(one[name].cost for one in part):.3f}" for part in found),
            str(sum(not one[name].in_time for part in found for one in part)),
        )
        for name in found[0][0]
    ]
    worst = (f"{OURS}, worst start", *(f"{max(one[OURS].cost for one in part):.3f}" for part in found), "")
    return table(("cost/omniscient", *(c.title for c in every), "misses in all"), [*rows, worst])
