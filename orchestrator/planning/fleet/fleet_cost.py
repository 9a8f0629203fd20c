"""
Compute what a fleet has cost and how far its jobs are, from what its nodes did.

Pure. The parts of a cost add up to the total; time without a task has rows of its own.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.domain.job_progress import seconds_remaining
from orchestrator.planning.fleet.tasks import TaskState
from orchestrator.planning.fleet.use import FleetNodeLane, FleetNodeUseSpan, JobHistory
from orchestrator.planning.fleet.users import SHARED
from orchestrator.pricing.use_spans import Use


@dataclass(frozen=True)
class Amount:
    """
    Node seconds and their cost in USD; *lost_usd* is the part whose work was lost with its machine.

    *upper_usd* is the cost at the highest prices of any source.
    """

    seconds: float = 0.0
    usd: float = 0.0
    on_demand_usd: float = 0.0
    lost_usd: float = 0.0
    upper_usd: float = 0.0


@dataclass(frozen=True)
class FleetCost:
    """
    What a fleet has cost: by job, by task, by use for time without a task, and for the VM.

    The parts add up to the total. *unpriced* says that a machine's price is not known; the sums leave it out.
    """

    jobs: Mapping[str, Amount]
    tasks: Mapping[tuple[str, int], Amount]
    others: Mapping[str, Amount]
    unpriced: bool = False

    @property
    def usd(self) -> float:
        """Return the total in USD."""
        return sum(one.usd for one in (*self.jobs.values(), *self.others.values()))

    @property
    def upper_usd(self) -> float:
        """Return the total in USD at the highest prices of any source."""
        return sum(one.upper_usd for one in (*self.jobs.values(), *self.others.values()))

    @property
    def on_demand_usd(self) -> float:
        """Return what the same time would have cost on demand, in USD."""
        return sum(one.on_demand_usd for one in (*self.jobs.values(), *self.others.values()))


VM = "VM"


def fleet_cost(found: Iterable[FleetNodeLane], vm: Amount) -> FleetCost:
    """Return the cost of the time in *found*, plus the VM's."""
    jobs: dict[str, Amount] = defaultdict(Amount)
    tasks: dict[tuple[str, int], Amount] = defaultdict(Amount)
    others: dict[str, Amount] = defaultdict(Amount)
    unpriced = False
    for lane in found:
        for part in lane.use_spans:
            unpriced = unpriced or part.usd is None or part.on_demand_usd is None
            if part.job:
                jobs[part.job] = _more(jobs[part.job], part)
                tasks[part.job, part.task] = _more(tasks[part.job, part.task], part)
            else:
                others[part.use.value] = _more(others[part.use.value], part)
    order = [use.value for use in Use if use.value in others]
    return FleetCost(dict(jobs), dict(tasks), {**{use: others[use] for use in order}, VM: vm}, unpriced)


def _more(amount: Amount, part: FleetNodeUseSpan) -> Amount:
    usd, full = part.usd or 0.0, part.on_demand_usd or 0.0
    return Amount(
        amount.seconds + part.until - part.since, amount.usd + usd, amount.on_demand_usd + full,
        amount.lost_usd + (usd if part.use is Use.LOST else 0.0), amount.upper_usd + (part.upper_usd or 0.0),
    )  # fmt: skip


def running(found: Iterable[FleetNodeLane], now: float) -> frozenset[tuple[str, int]]:
    """Return the (job, number) of each task that runs now, as far as heartbeats show it."""
    ends = (lane.use_spans[-1] for lane in found if lane.has_machine and lane.use_spans)
    return frozenset((one.job, one.task) for one in ends if one.use is Use.TRAINING and one.until >= now)


def state_of(job: JobHistory, task: int, at_work: frozenset[tuple[str, int]]) -> TaskState:
    """Return the state of a task by the bucket alone: its end mark, a cancellation, then its heartbeats."""
    if task in job.ends:
        return job.ends[task].state
    if task in job.submission.cancelled:
        return TaskState.CANCELLED
    return TaskState.RUNNING if (job.submission.name, task) in at_work else TaskState.WAITING


def steps_redone(job: JobHistory, task: int) -> int | None:
    """Return how many steps a task had to repeat; None if a start has not reported enough."""
    starts, total = job.starts.get(task, ()), 0
    for before, after in pairwise(starts):
        if before.heartbeat is None or before.heartbeat.step is None:
            continue  # no step is known to be lost
        if after.heartbeat is None or (after.heartbeat.resumed_from is None and after.heartbeat.step is None):
            return None
        total += max(0, before.heartbeat.step - (after.heartbeat.resumed_from or 0))
    return total


def jobs_remaining(
    jobs: Sequence[JobHistory], costs: FleetCost, at_work: frozenset[tuple[str, int]], nodes: int
) -> dict[str, float]:
    """
    Return the seconds until each job ends, in the order of submission, at *nodes* nodes.

    A task is assumed to take as long as the finished tasks of its job, or as a running one forecasts by its
    steps. A job with neither is left out, and so are those after it.
    """
    found: dict[str, float] = {}
    before = 0.0
    for job in sorted(jobs, key=lambda one: (one.submission.submitted_at, one.submission.name)):
        name, target = job.submission.name, job.submission.job.target_steps
        took = [
            costs.tasks[name, n].seconds / _width(job, n)
            for n, end in job.ends.items()
            if end.state is TaskState.DONE and (name, n) in costs.tasks
        ]
        remaining: list[float] = []
        forecasts: list[float] = []
        for task in range(len(job.submission.parameters)):
            if state_of(job, task, at_work) is not TaskState.RUNNING:
                continue
            heartbeat = job.last_heartbeat(task)
            spent = costs.tasks.get((name, task), Amount()).seconds / _width(job, task)
            own = seconds_remaining((heartbeat,), target) if heartbeat else None
            if own is not None:
                forecasts.append(spent + own)
            remaining.append(own if own is not None else -spent)
        waiting = sum(
            state_of(job, n, at_work) is TaskState.WAITING for n in range(len(job.submission.parameters))
        )
        typical = sum(took) / len(took) if took else sum(forecasts) / len(forecasts) if forecasts else None
        if (waiting or any(one < 0 for one in remaining)) and typical is None:
            return found
        each = typical or 0.0
        rest = [one if one >= 0 else max(0.0, each + one) for one in remaining]
        work = (sum(rest) + waiting * each) * job.submission.slices[1]
        if not work:
            continue
        if nodes <= 0:
            return found
        before += work
        found[name] = max(before / nodes, *rest, each if waiting else 0.0)
    return found


def _width(job: JobHistory, task: int) -> int:
    """Return how many nodes a task has, or had last."""
    starts = job.starts.get(task, ())
    return 1 + len(starts[-1].beside) if starts else job.submission.slices[1]


def by_user(jobs: Iterable[JobHistory], costs: FleetCost) -> dict[str, Amount]:
    """Return what the jobs of each login have cost; jobs that were submitted without one are SHARED's."""
    found: dict[str, Amount] = {}
    for job in jobs:
        login, one = job.submission.user or SHARED, costs.jobs.get(job.submission.name, Amount())
        sum_ = found.get(login, Amount())
        found[login] = Amount(
            sum_.seconds + one.seconds, sum_.usd + one.usd, sum_.on_demand_usd + one.on_demand_usd,
            sum_.lost_usd + one.lost_usd, sum_.upper_usd + one.upper_usd,
        )  # fmt: skip
    return found


def _united(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the time that is in any of the spans: a task of several slices works on several nodes at once."""
    found: list[tuple[float, float]] = []
    for since, until in sorted(spans):
        if found and since < found[-1][1]:
            found[-1] = (found[-1][0], max(until, found[-1][1]))
        else:
            found.append((since, until))
    return found


def queue_curve(
    jobs: Iterable[JobHistory], found: Iterable[FleetNodeLane]
) -> tuple[list[tuple[float, int, int]], int]:
    """
    Return (time, running, waiting) at each change, and the number of tasks that are left out.

    Left out are tasks that were cancelled before they started, because that time is not recorded.
    """
    worked: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for part in (part for lane in found for part in lane.use_spans if part.job):
        worked[part.job, part.task].append((part.since, part.until))
    worked.update({task: _united(spans) for task, spans in worked.items()})
    every = [(job, task) for job in jobs for task in range(len(job.submission.parameters))]
    known = [
        (job, task)
        for job, task in every
        if task in job.ends or task not in job.submission.cancelled or worked[job.submission.name, task]
    ]
    changes = sorted(
        change for job, task in known for change in _changes(job, task, worked[job.submission.name, task])
    )
    curve: list[tuple[float, int, int]] = []
    at_work = waiting = 0
    for at, busy, idle in changes:
        at_work, waiting = at_work + busy, waiting + idle
        if curve and curve[-1][0] == at:
            curve.pop()
        curve.append((at, max(0, at_work), max(0, waiting)))
    return curve, len(every) - len(known)


def _changes(
    job: JobHistory, task: int, worked: Sequence[tuple[float, float]]
) -> Iterator[tuple[float, int, int]]:
    """Yield (time, change of running tasks, change of waiting tasks) for one task."""
    yield job.submission.submitted_at, 0, 1
    if task in job.ends:
        yield job.ends[task].at, 0, -1
    elif task in job.submission.cancelled:
        yield max(until for _, until in worked), 0, -1
    for since, until in worked:
        yield since, 1, -1
        yield until, -1, 1


@dataclass(frozen=True)
class FleetUsage:
    """
    What is known of a fleet at *now*. *unread* names nodes whose record could not be read and counts nowhere.

    *eta* maps unfinished jobs to the seconds until they end, if that is known.
    *unread_jobs* are jobs that could not be read: what nodes did for them counts as idle.
    """

    name: str
    now: float
    jobs: tuple[JobHistory, ...]
    lanes: tuple[FleetNodeLane, ...]
    cost: FleetCost
    at_work: frozenset[tuple[str, int]]
    eta: Mapping[str, float]
    budget_usd: float | None
    unbilled: bool
    unread: tuple[str, ...] = ()
    preemptions: int = 0
    unread_jobs: tuple[str, ...] = ()

    def job(self, name: str) -> JobHistory:
        """Return the history of the job of that name."""
        return next(one for one in self.jobs if one.submission.name == name)

    @property
    def incomplete(self) -> bool:
        """Return whether a price or a node's record is missing, so that sums are lower bounds."""
        return self.cost.unpriced or bool(self.unread)
