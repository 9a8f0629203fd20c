"""
Derive what the nodes of a fleet did, and for which task, from records, heartbeats and end marks.

Pure. The bucket says when a task started and ended, the record when a machine existed, the heartbeat how far
a task came. Time that none of them explains is reported as unknown.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from orchestrator.contract.phase import AT_REST, Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.record import Span
from orchestrator.planning.fleet.tasks import Submission, TaskState
from orchestrator.pricing.use_spans import Use

T = TypeVar("T")
SILENT = 120.0
"""Seconds without a heartbeat after which it is unknown whether a task runs; heartbeats come every 2 to 30 s."""
FIRST_WORD = 600.0
"""Seconds until the first heartbeat of a task is due: code and a checkpoint are downloaded first."""
OVER = frozenset({Phase.ENDED, *AT_REST})


@dataclass(frozen=True)
class TaskStart:
    """
    One start of a task: its *number*, its node, its time by the bucket's clock, its last *heartbeat*.

    *beside* are the other nodes of a task of several slices.
    """

    task: int
    number: int
    node: str
    at: float
    heartbeat: Heartbeat | None = None
    beside: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskEnd:
    """How (one of END_STATES) and when a task ended."""

    state: TaskState
    at: float


@dataclass(frozen=True)
class JobHistory:
    """A job with all starts of its tasks in order, and the ends of those that have ended."""

    submission: Submission
    starts: Mapping[int, tuple[TaskStart, ...]] = field(default_factory=dict)
    ends: Mapping[int, TaskEnd] = field(default_factory=dict)

    def restarts(self, task: int) -> int:
        """Return how many times a task was restarted."""
        return max(0, len(self.starts.get(task, ())) - 1)

    def last_heartbeat(self, task: int) -> Heartbeat | None:
        """Return the newest heartbeat of a task, or None."""
        return next((one.heartbeat for one in reversed(self.starts.get(task, ())) if one.heartbeat), None)

    def progress(self, task: int) -> tuple[int | None, float | None]:
        """Return step and loss of a task, None if not reported: a start that finds its task done reports none."""
        heartbeats = [one.heartbeat for one in reversed(self.starts.get(task, ())) if one.heartbeat]
        steps = (one.step if one.step is not None else one.committed_step for one in heartbeats)
        step = next((one for one in steps if one is not None), None)
        return step, next((one.loss for one in heartbeats if one.loss is not None), None)


Rates = tuple[float | None, float | None, float | None]
"""USD per hour as billed, at the highest prices, and on demand; None if a price is not known."""


@dataclass(frozen=True)
class FleetNodeFacts:
    """
    One node: *spans* with a machine, and when the machine of each incarnation was *ready*.

    *rate* prices a span in USD per hour.
    """

    name: str
    spans: tuple[Span, ...]
    ready: Mapping[str, float]
    rate: Callable[[Span], Rates]


@dataclass(frozen=True)
class FleetNodeUseSpan:
    """A span of a node's time and its use; *job* and *task* are those that used it, even if their work was lost."""

    since: float
    until: float
    use: Use
    job: str = ""
    task: int = -1
    usd: float | None = 0.0
    upper_usd: float | None = 0.0
    on_demand_usd: float | None = 0.0


@dataclass(frozen=True)
class FleetNodeLane:
    """The time of one node; *has_machine* says that it has one now."""

    name: str
    use_spans: tuple[FleetNodeUseSpan, ...]
    has_machine: bool


@dataclass(frozen=True)
class _StartTimes:
    """The times of a start: its work counts until *saved*, it ran until *reported*, and *then* follows."""

    job: str
    start: TaskStart
    saved: float
    reported: float
    then: Use = Use.IDLE


def lanes(
    nodes: Iterable[FleetNodeFacts], jobs: Iterable[JobHistory], now: float
) -> tuple[FleetNodeLane, ...]:
    """Return what each node did from its first machine until *now*, without gaps while it had one."""
    by_node: dict[str, list[tuple[JobHistory, TaskStart, TaskStart | None]]] = defaultdict(list)
    for job in jobs:
        for starts in job.starts.values():
            for start, after in _followed(starts):
                for node in (start.node, *start.beside):
                    by_node[node].append((job, start, after))
    return tuple(_lane(node, sorted(by_node[node.name], key=lambda one: one[1].at), now) for node in nodes)


def _followed(found: Sequence[T]) -> Iterator[tuple[T, T | None]]:
    """Yield each item with the next one, None after the last."""
    return zip(found, (*found[1:], None), strict=False)


def _lane(
    node: FleetNodeFacts, starts: Sequence[tuple[JobHistory, TaskStart, TaskStart | None]], now: float
) -> FleetNodeLane:
    found: list[FleetNodeUseSpan] = []
    spans = sorted(node.spans, key=lambda span: span.since)
    for span, after in _followed(spans):
        end = max(span.since, min(now, span.until or now, after.since if after else now))
        # Two clocks are involved, so a start may seem to precede its machine.
        mine = [
            _times_of(job, start, later, over=span.until is not None, now=now)
            for job, start, later in starts
            if span.since <= start.at + 1.0 and (after is None or start.at < after.since)
        ]
        rates = node.rate(span)
        for one in _within(span, end, mine, node.ready.get(span.name)):
            hours = (one.until - one.since) / 3600
            usd, most, full = (None if price is None else price * hours for price in rates)
            found.append(replace(one, usd=usd, upper_usd=most, on_demand_usd=full))
    return FleetNodeLane(node.name, tuple(found), any(span.until is None for span in spans))


def _times_of(
    job: JobHistory, start: TaskStart, after: TaskStart | None, *, over: bool, now: float
) -> _StartTimes:
    heartbeat, end, name = start.heartbeat, job.ends.get(start.task), job.submission.name
    if after is None and end is not None:
        return _StartTimes(name, start, end.at, end.at)
    reported = max(start.at, heartbeat.updated) if heartbeat else start.at
    stopped = heartbeat is not None and heartbeat.phase in OVER
    quiet = now - reported > (SILENT if heartbeat else FIRST_WORD)
    if after is None and not (over or quiet or stopped):
        return _StartTimes(name, start, now, now)
    # Silent but not reported lost: unknown.
    then = Use.LOST if over else Use.IDLE if stopped else Use.UNKNOWN
    lost = after is not None or over
    return _StartTimes(name, start, _saved(start, reported) if lost else reported, reported, then)


def _saved(start: TaskStart, reported: float) -> float:
    """Return until when the work of a start that did not end well is saved in the bucket."""
    heartbeat = start.heartbeat
    if heartbeat is None or heartbeat.step is None or heartbeat.committed_step is None:
        return start.at
    if heartbeat.committed_step >= heartbeat.step:
        return reported
    # A machine's own clock may be wrong: no save is later than the heartbeat that reports it.
    return min(reported, max(start.at, heartbeat.committed_at or start.at))


def _within(
    span: Span, end: float, starts: Sequence[_StartTimes], ready: float | None
) -> Iterator[FleetNodeUseSpan]:
    """Yield the spans of one machine's lifetime: starting, its tasks, idle, lost."""
    known = [at for at in (ready, starts[0].start.at if starts else None) if at is not None]
    if not known:
        # An existing machine is being prepared; for a deleted one without any report it is unknown.
        yield from _use_span(span.since, end, Use.STARTING if span.until is None else Use.UNKNOWN)
        return
    at = min(max(span.since, min(known)), end)
    yield from _use_span(span.since, at, Use.STARTING)
    for one, following in _followed(starts):
        limit = min(end, following.start.at) if following else end
        since = min(max(at, one.start.at), limit)
        saved, reported = (min(max(since, at_last), limit) for at_last in (one.saved, one.reported))
        yield from _use_span(at, since, Use.IDLE)
        yield from _use_span(since, saved, Use.TRAINING, one.job, one.start.task)
        yield from _use_span(saved, reported, Use.LOST, one.job, one.start.task)
        at = reported
        # A machine on which another task started later was not lost during this one.
        if following is None or one.then is Use.UNKNOWN:
            yield from _use_span(at, limit, one.then)
            at = limit
    yield from _use_span(at, end, Use.IDLE)


def _use_span(
    since: float, until: float, use: Use, job: str = "", task: int = -1
) -> Iterator[FleetNodeUseSpan]:
    if until > since:
        yield FleetNodeUseSpan(since, until, use, job, task)
