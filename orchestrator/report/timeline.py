"""Build the timeline of each machine from the record, the last reports and the events."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from orchestrator.contract.phase import Phase
from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Heartbeat
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.pricing.cost_breakdown import Use, UseSpan, use_spans_of


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

    *steps* says in words which steps it trained, *is_up* that it exists.
    """

    name: str
    zone: str
    bars: tuple[UseSpan, ...]
    number: int | None = None
    marks: tuple[TimelineMark, ...] = ()
    steps: str = ""
    is_up: bool = False


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
    spans: Sequence[Span], beats: Sequence[Heartbeat], events: Sequence[Event], now: float
) -> Timeline:
    """Return the lanes of all machines that ever existed, up to *now* or to the end of the last of them."""
    last = {beat.incarnation: beat for beat in beats if beat.worker == 0}
    nodes = sorted((span for span in spans if span.kind is Kind.NODE), key=lambda span: span.since)
    lanes = [_node(index, nodes, last, events, now) for index in range(len(nodes))]
    vms: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        if span.kind is Kind.VM:
            vms.setdefault((span.name, span.zone), []).append(span)
    for (name, zone), existed in vms.items():
        bars = tuple(UseSpan(span.since, _end(span, now), Use.TRAINING) for span in existed)
        lanes.append(Lane(name, zone, bars, is_up=any(span.until is None for span in existed)))
    since = min((span.since for span in spans), default=now)
    until = max((_end(span, now) for span in spans), default=now)
    return Timeline(since, max(until, since + 1.0), tuple(lanes))


def _end(span: Span, now: float) -> float:
    return max(span.since, now if span.until is None else span.until)


def _node(
    index: int, nodes: Sequence[Span], last: dict[int, Heartbeat], events: Sequence[Event], now: float
) -> Lane:
    """Return one TPU's lane, by the same words and rules as `cost_breakdown`."""
    span = nodes[index]
    number = incarnation_of(span.name, {}) or 0
    end, beat, is_up = _end(span, now), last.get(number), span.until is None
    lost = [e.at for e in events if e.kind == EventKind.PREEMPTED and e.data.get("incarnation") == number]
    marks = [TimelineMark(min(max(at, span.since), end), MarkKind.PREEMPTED) for at in lost[:1]]
    if beat is not None and beat.phase in {Phase.DONE, Phase.UNCOMMITTED, Phase.FAILED}:
        kind = MarkKind.DONE if beat.phase is Phase.DONE else MarkKind.FAILED
        marks.append(TimelineMark(min(beat.updated, end), kind))
    steps = f"steps {beat.resumed_from or 0:,} to {beat.step:,}" if beat and beat.step is not None else ""
    bars = use_spans_of(
        span.since, end, beat, Use.RECOVERING if index else Use.STARTING,
        lost=index + 1 < len(nodes), is_up=is_up,
    )  # fmt: skip
    shown = tuple(bar for bar in bars if bar.until > bar.since)
    return Lane(span.name, span.zone, shown, number, tuple(marks), steps, is_up)
