"""Deadlines in a run: which jobs are replayed, from where, and what came of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from random import Random
from statistics import mean

from benchmarks.policies.cost_bound import least_cost, least_costs
from benchmarks.policies.deadlines import CHOOSERS, Job, cold_ticks, finish
from benchmarks.policies.table import table
from benchmarks.policies.trace import SETS, Trace

STARTS = 300
COLD = 360.0
"""Seconds of a change: a machine, the code, the checkpoint."""


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


def contracts() -> list[Contract]:
    """Return the jobs of a run; ticks are three times as long as recorded, about ten minutes."""
    nine = SETS["v100"]().coarse(3)
    return [
        Contract("nine zones, 1.5", nine, 100, 1.5),
        Contract("nine zones, 1.1", nine, 100, 1.1),
        Contract("one region, 1.2", nine.only(6, 7, 8), 100, 1.2),
        Contract("one zone (us-east-2b), 1.5", nine.only(5), 100, 1.5),
        Contract("16 at once, 1.5", SETS["gang16"]().coarse(2), 60, 1.5),
    ]


def from_start(contract: Contract, start: int) -> dict[str, tuple[float, bool]]:
    """Return for each policy its cost as a multiple of the least possible, and whether it was in time."""
    ticks, work = contract.ticks
    return beside(contract, start, least_cost(contract.trace, start, ticks, work, COLD))


def from_starts(contract: Contract, starts: Sequence[int]) -> list[dict[str, tuple[float, bool]]]:
    """Return the same for several starts."""
    ticks, work = contract.ticks
    least = least_costs(contract.trace, starts, ticks, work, COLD)
    return [beside(contract, start, cost) for start, cost in zip(starts, least, strict=True)]


def beside(contract: Contract, start: int, least: float) -> dict[str, tuple[float, bool]]:
    """Let every policy do the job, and set what it costs against the least."""
    ticks, work = contract.ticks
    cold = cold_ticks(contract.trace, COLD)
    jobs = {
        name: finish(Job(contract.trace, start, ticks, work, cold), rule) for name, rule in CHOOSERS.items()
    }
    return {name: (job.cost / least, job.done >= work) for name, job in jobs.items()}


def fulfil(contract: Contract, starts: int, jobs: int) -> dict[str, tuple[float, int]]:
    """Return for each policy the mean multiple and the number of misses, over starts drawn from a seed."""
    draw = Random(contract.title)
    last = int(contract.trace.up.shape[1]) - contract.ticks[0]
    firsts = [draw.randrange(last + 1) for _ in range(starts)]
    with get_context("fork").Pool(jobs) as pool:
        parts = pool.map(partial(from_starts, contract), [firsts[i : i + 10] for i in range(0, starts, 10)])
    found = [one for part in parts for one in part]
    return {
        name: (mean(one[name][0] for one in found), sum(not one[name][1] for one in found))
        for name in CHOOSERS
    }


def due_table(jobs: int, starts: int = STARTS) -> str:
    """Return cost and misses of every policy for every job."""
    every = contracts()
    found = [fulfil(contract, starts, jobs) for contract in every]
    rows = [
        (name, *(f"{one[name][0]:.3f}" for one in found), str(sum(one[name][1] for one in found)))
        for name in CHOOSERS
    ]
    return table(("cost/omniscient", *(c.title for c in every), "misses in all"), rows)
