"""Build the timeline of each machine from the record, the last heartbeats and the events."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from orchestrator.contract.phase import Phase
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.pricing.use_spans import TpuTime, Use, UseSpan, tpu_times


class MarkKind(Enum):
    """Say what a mark shows, as the page names it."""

    PREEMPTED = "preempted"
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True)
class TimelineMark:
    """A moment on a machine's lane."""

    at: float
    kind: MarkKind


@dataclass(frozen=True)
class Lane:
    """
    The lane of one machine; a VM has no *number*, and its bars only show that it runs.

    *steps* says in words which steps it trained, *exists* that its machine does.
    """

    name: str
    zone: str
    bars: tuple[UseSpan, ...]
    number: int | None = None
    marks: tuple[TimelineMark, ...] = ()
    steps: str = ""
    exists: bool = False


@dataclass(frozen=True)
class Timeline:
    """All lanes and the time that they cover."""

    since: float
    until: float
    lanes: tuple[Lane, ...]

    @property
    def preemptions(self) -> dict[int, float]:
        """Return the time of each TPU's preemption, by incarnation."""
        marks = ((lane.number, mark) for lane in self.lanes for mark in lane.marks)
        return {number: mark.at for number, mark in marks if number and mark.kind is MarkKind.PREEMPTED}


def timeline(
    spans: Sequence[Span], heartbeats: Sequence[Heartbeat], events: Sequence[Event], now: float,
    up_times: Sequence[float] = (),
) -> Timeline:  # fmt: skip
    """
    Return the lanes of all machines that ever existed, up to *now* or to the end of the last of them.

    *up_times* are those at which `up` started the deployment.
    """
    lanes = [_node(one, events, now) for one in tpu_times(spans, heartbeats, up_times)]
    vms: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        if span.kind is Kind.VM:
            vms.setdefault((span.name, span.zone), []).append(span)
    for (name, zone), existed in vms.items():
        bars = tuple(UseSpan(span.since, _end(span, now), Use.TRAINING) for span in existed)
        lanes.append(Lane(name, zone, bars, exists=any(span.until is None for span in existed)))
    since = min((span.since for span in spans), default=now)
    until = max((_end(span, now) for span in spans), default=now)
    return Timeline(since, max(until, since + 1.0), tuple(lanes))


def _end(span: Span, now: float) -> float:
    return max(span.since, now if span.until is None else span.until)


def _node(one: TpuTime, events: Sequence[Event], now: float) -> Lane:
    """Return one TPU's lane, by the same words and rules as `cost_breakdown`."""
    span, heartbeat = one.span, one.heartbeat
    number = incarnation_of(span.name, {}) or 0
    end, exists = _end(span, now), span.until is None
    lost = [e.at for e in events if e.kind == EventKind.PREEMPTED and e.data.get("incarnation") == number]
    marks = [TimelineMark(min(max(at, span.since), end), MarkKind.PREEMPTED) for at in lost[:1]]
    if heartbeat is not None and heartbeat.phase in {Phase.DONE, Phase.UNCOMMITTED, Phase.FAILED}:
        kind = MarkKind.DONE if heartbeat.phase is Phase.DONE else MarkKind.FAILED
        marks.append(TimelineMark(min(heartbeat.updated, end), kind))
    shown = tuple(bar for bar in one.uses(end) if bar.until > bar.since)
    return Lane(span.name, span.zone, shown, number, tuple(marks), _steps(heartbeat), exists)


def _steps(heartbeat: Heartbeat | None) -> str:
    """Return which steps a TPU trained, in words: those of all its attempts."""
    if heartbeat is None:
        return ""
    trained = heartbeat.trainings
    last = heartbeat.step if heartbeat.step is not None else trained[-1].to_step if trained else None
    first = trained[0].from_step if trained else heartbeat.start_step
    return "" if last is None else f"steps {first:,} to {last:,}"
