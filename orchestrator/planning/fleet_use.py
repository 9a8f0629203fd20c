"""
What the nodes of a fleet did, and for whom: from records, reports and marks, never from a guess.

Pure. When a task began and ended says the bucket, when a machine existed its record; how far a task came is what
its machine reported last. What none of them tells is not known, and has a row of its own.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from itertools import pairwise

from orchestrator.domain.job_progress import seconds_remaining
from orchestrator.domain.observation import Heartbeat, Phase
from orchestrator.domain.record import Span
from orchestrator.planning.fleet import Order

SILENT = 120.0
"""Seconds without a report after which nobody knows whether a task runs; machines report each 2 to 30 s."""
FIRST_WORD = 600.0
"""Seconds that a task has for its first report: code and a checkpoint come first."""
OVER = frozenset({Phase.ENDED, Phase.DONE, Phase.UNCLAIMED, Phase.FAILED, Phase.STOPPED})


class NodeUse(Enum):
    """Name what a node's time went into; the value is the word for people."""

    WORK = "working"
    BOOT = "booting"
    IDLE = "idle"
    LOST = "lost"
    UNKNOWN = "not known"


@dataclass(frozen=True)
class Start:
    """Hold one start of a task: on which node, when by the bucket's clock, and the last *beat* of it."""

    task: int
    incarnation: int
    node: str
    at: float
    beat: Heartbeat | None = None


@dataclass(frozen=True)
class TaskEnd:
    """Hold how a task ended (done, unclaimed, failed), and when."""

    phase: str
    at: float


@dataclass(frozen=True)
class JobHistory:
    """Hold a job with all starts of its tasks, in their order, and the ends of those that have ended."""

    order: Order
    starts: Mapping[int, tuple[Start, ...]] = field(default_factory=dict)
    ends: Mapping[int, TaskEnd] = field(default_factory=dict)

    def restarts(self, task: int) -> int:
        """Return how many times a task began again."""
        return max(0, len(self.starts.get(task, ())) - 1)

    def last_beat(self, task: int) -> Heartbeat | None:
        """Return the newest report of a task."""
        return next((one.beat for one in reversed(self.starts.get(task, ())) if one.beat), None)


@dataclass(frozen=True)
class NodeFacts:
    """
    Hold one node: the *spans* in which it had a machine, and when the machine of an incarnation was *ready*.

    *rate* prices a span: USD an hour as billed, and on demand; None where no price is known.
    """

    name: str
    spans: tuple[Span, ...]
    ready: Mapping[str, float]
    rate: Callable[[Span], tuple[float | None, float | None]]


@dataclass(frozen=True)
class NodeStretch:
    """Hold a stretch of a node's time; *job* and *task* are those that had it, also where its work was lost."""

    since: float
    until: float
    use: NodeUse
    job: str = ""
    task: int = -1
    usd: float | None = 0.0
    ondemand_usd: float | None = 0.0


@dataclass(frozen=True)
class NodeLane:
    """Hold the time of one node; *lives* says that it has a machine now."""

    name: str
    stretches: tuple[NodeStretch, ...]
    lives: bool


@dataclass(frozen=True)
class _Run:
    """Hold the time that a start had: until *saved* it counts, until *reported* it ran, *then* what is known."""

    job: str
    start: Start
    saved: float
    reported: float
    then: NodeUse = NodeUse.IDLE
    lives: bool = False


def lanes(nodes: Iterable[NodeFacts], jobs: Iterable[JobHistory], now: float) -> tuple[NodeLane, ...]:
    """Return what each node did from its first machine to *now*, without gaps while it had one."""
    begun: dict[str, list[tuple[JobHistory, Start, Start | None]]] = defaultdict(list)
    for job in jobs:
        for starts in job.starts.values():
            for start, after in zip(starts, (*starts[1:], None), strict=True):
                begun[start.node].append((job, start, after))
    return tuple(_lane(node, sorted(begun[node.name], key=lambda one: one[1].at), now) for node in nodes)


def _lane(node: NodeFacts, begun: Sequence[tuple[JobHistory, Start, Start | None]], now: float) -> NodeLane:
    found: list[NodeStretch] = []
    spans = sorted(node.spans, key=lambda span: span.since)
    for span, after in zip(spans, (*spans[1:], None), strict=True):
        end = max(span.since, min(now, span.until or now, after.since if after else now))
        # By two clocks: a start may seem to be a moment before its machine.
        mine = [
            _run(job, start, later, over=span.until is not None, now=now)
            for job, start, later in begun
            if span.since <= start.at + 1.0 and (after is None or start.at < after.since)
        ]
        rate, on_demand = node.rate(span)
        for part in _within(span, end, mine, node.ready.get(span.name)):
            hours = (part.until - part.since) / 3600
            usd, full = (None if price is None else price * hours for price in (rate, on_demand))
            found.append(replace(part, usd=usd, ondemand_usd=full))
    return NodeLane(node.name, tuple(found), any(span.until is None for span in spans))


def _run(job: JobHistory, start: Start, after: Start | None, *, over: bool, now: float) -> _Run:
    beat, end, name = start.beat, job.ends.get(start.task), job.order.name
    if after is None and end is not None:
        return _Run(name, start, end.at, end.at)
    reported = max(start.at, beat.updated) if beat else start.at
    stopped = beat is not None and beat.phase in OVER
    quiet = now - reported > (SILENT if beat else FIRST_WORD)
    if after is None and not (over or quiet or stopped):
        return _Run(name, start, now, now, lives=True)
    # Nobody has said that a quiet one is gone, and nothing is known of it.
    then = NodeUse.LOST if over else NodeUse.IDLE if stopped else NodeUse.UNKNOWN
    lost = after is not None or over
    return _Run(name, start, _saved(start, reported) if lost else reported, reported, then)


def _saved(start: Start, reported: float) -> float:
    """Return until when the work of a start that did not end well is in the bucket."""
    beat = start.beat
    if beat is None or beat.step is None or beat.committed_step is None:
        return start.at
    if beat.committed_step >= beat.step:
        return reported
    # A machine's own clock may be wrong: no save is later than its report.
    return min(reported, max(start.at, beat.committed_at or start.at))


def _within(span: Span, end: float, runs: Sequence[_Run], ready: float | None) -> Iterator[NodeStretch]:
    """Yield the stretches of one machine's life."""
    known = [at for at in (ready, runs[0].start.at if runs else None) if at is not None]
    if not known:
        # One that exists is on its way; of one that is gone without a word nobody knows.
        yield from _part(span.since, end, NodeUse.BOOT if span.until is None else NodeUse.UNKNOWN)
        return
    at = min(max(span.since, min(known)), end)
    yield from _part(span.since, at, NodeUse.BOOT)
    for run, following in zip(runs, (*runs[1:], None), strict=True):
        limit = min(end, following.start.at) if following else end
        since = min(max(at, run.start.at), limit)
        saved, reported = (min(max(since, one), limit) for one in (run.saved, run.reported))
        yield from _part(at, since, NodeUse.IDLE)
        yield from _part(since, saved, NodeUse.WORK, run.job, run.start.task)
        yield from _part(saved, reported, NodeUse.LOST, run.job, run.start.task)
        at = reported
        # A machine that has begun another task was not lost with this one.
        if following is None or run.then is NodeUse.UNKNOWN:
            yield from _part(at, limit, run.then)
            at = limit
    yield from _part(at, end, NodeUse.IDLE)


def _part(since: float, until: float, use: NodeUse, job: str = "", task: int = -1) -> Iterator[NodeStretch]:
    if until > since:
        yield NodeStretch(since, until, use, job, task)


@dataclass(frozen=True)
class Amount:
    """Hold node seconds and their cost; *lost_usd* is the part of work that was lost with its machine."""

    seconds: float = 0.0
    usd: float = 0.0
    ondemand_usd: float = 0.0
    lost_usd: float = 0.0


@dataclass(frozen=True)
class Bill:
    """
    Hold what a fleet has cost: by job, by task of a job, and for what no task had (by use, and the VM).

    The parts add up to the whole. *unpriced* says that a machine's price is not known: the sums leave it out.
    """

    jobs: Mapping[str, Amount]
    tasks: Mapping[tuple[str, int], Amount]
    others: Mapping[str, Amount]
    unpriced: bool = False

    @property
    def usd(self) -> float:
        """Return the whole."""
        return sum(one.usd for one in (*self.jobs.values(), *self.others.values()))

    @property
    def ondemand_usd(self) -> float:
        """Return what the same would have cost on demand."""
        return sum(one.ondemand_usd for one in (*self.jobs.values(), *self.others.values()))


VM = "VM"


def bill(found: Iterable[NodeLane], vm: Amount) -> Bill:
    """Return what the time in *found* has cost, beside the VM."""
    jobs: dict[str, Amount] = defaultdict(Amount)
    tasks: dict[tuple[str, int], Amount] = defaultdict(Amount)
    others: dict[str, Amount] = defaultdict(Amount)
    unpriced = False
    for lane in found:
        for part in lane.stretches:
            unpriced = unpriced or part.usd is None or part.ondemand_usd is None
            if part.job:
                jobs[part.job] = _more(jobs[part.job], part)
                tasks[part.job, part.task] = _more(tasks[part.job, part.task], part)
            else:
                others[part.use.value] = _more(others[part.use.value], part)
    order = [use.value for use in NodeUse if use.value in others]
    return Bill(dict(jobs), dict(tasks), {**{use: others[use] for use in order}, VM: vm}, unpriced)


def _more(amount: Amount, part: NodeStretch) -> Amount:
    usd, full = part.usd or 0.0, part.ondemand_usd or 0.0
    return Amount(
        amount.seconds + part.until - part.since, amount.usd + usd, amount.ondemand_usd + full,
        amount.lost_usd + (usd if part.use is NodeUse.LOST else 0.0),
    )  # fmt: skip


def running(found: Iterable[NodeLane], now: float) -> frozenset[tuple[str, int]]:
    """Return the tasks that work now, as far as their reports tell."""
    ends = (lane.stretches[-1] for lane in found if lane.lives and lane.stretches)
    return frozenset((one.job, one.task) for one in ends if one.use is NodeUse.WORK and one.until >= now)


def state_of(job: JobHistory, task: int, at_work: frozenset[tuple[str, int]]) -> str:
    """Return the state of a task by the bucket alone: its mark, what was cancelled, then its reports."""
    if task in job.ends:
        return job.ends[task].phase
    if task in job.order.cancelled:
        return "cancelled"
    return "running" if (job.order.name, task) in at_work else "waiting"


def lost_steps(job: JobHistory, task: int) -> int | None:
    """Return how many steps a task had to make again; None where a start has not reported enough to know."""
    starts, total = job.starts.get(task, ()), 0
    for before, after in pairwise(starts):
        if before.beat is None or before.beat.step is None:
            continue  # It made no step that could be lost, as far as anybody knows.
        if after.beat is None or (after.beat.resumed_from is None and after.beat.step is None):
            return None
        total += max(0, before.beat.step - (after.beat.resumed_from or 0))
    return total


def jobs_remaining(
    jobs: Sequence[JobHistory], costs: Bill, at_work: frozenset[tuple[str, int]], nodes: int
) -> dict[str, float]:
    """
    Return in how many seconds each job will be over, in the order of submission, at *nodes* nodes.

    A task takes as long as those of its job that are done took, or as a running one forecasts by its steps. A
    job of which neither is known is left out, and so are those behind it.
    """
    found: dict[str, float] = {}
    before = 0.0
    for job in sorted(jobs, key=lambda one: (one.order.submitted_at, one.order.name)):
        name, target = job.order.name, job.order.job.target_steps
        took = [
            costs.tasks[name, n].seconds
            for n, end in job.ends.items()
            if end.phase == "done" and (name, n) in costs.tasks
        ]
        remaining: list[float] = []
        forecasts: list[float] = []
        for task in range(len(job.order.parameters)):
            if state_of(job, task, at_work) != "running":
                continue
            beat, spent = job.last_beat(task), costs.tasks.get((name, task), Amount()).seconds
            own = seconds_remaining((beat,), target) if beat else None
            if own is not None:
                forecasts.append(spent + own)
            remaining.append(own if own is not None else -spent)
        waiting = sum(state_of(job, n, at_work) == "waiting" for n in range(len(job.order.parameters)))
        typical = sum(took) / len(took) if took else sum(forecasts) / len(forecasts) if forecasts else None
        if (waiting or any(one < 0 for one in remaining)) and typical is None:
            return found
        each = typical or 0.0
        rest = [one if one >= 0 else max(0.0, each + one) for one in remaining]
        work = sum(rest) + waiting * each
        if not work:
            continue
        if nodes <= 0:
            return found
        before += work
        found[name] = max(before / nodes, *rest, each if waiting else 0.0)
    return found


def queue_curve(
    jobs: Iterable[JobHistory], found: Iterable[NodeLane]
) -> tuple[list[tuple[float, int, int]], int]:
    """
    Return (time, running, waiting) at each change, and how many tasks are left out.

    Those are tasks that were cancelled before they began: when is not recorded.
    """
    worked: dict[tuple[str, int], list[tuple[float, float]]] = defaultdict(list)
    for part in (part for lane in found for part in lane.stretches if part.job):
        worked[part.job, part.task].append((part.since, part.until))
    every = [(job, task) for job in jobs for task in range(len(job.order.parameters))]
    known = [
        (job, task)
        for job, task in every
        if task in job.ends or task not in job.order.cancelled or worked[job.order.name, task]
    ]
    changes = sorted(
        change for job, task in known for change in _changes(job, task, worked[job.order.name, task])
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
    """Yield (time, change of those that run, change of those that wait) of one task."""
    yield job.order.submitted_at, 0, 1
    if task in job.ends:
        yield job.ends[task].at, 0, -1
    elif task in job.order.cancelled:
        yield max(until for _, until in worked), 0, -1
    for since, until in worked:
        yield since, 1, -1
        yield until, -1, 1
