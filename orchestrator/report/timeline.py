"""What each machine did and when, from the record, the last reports and the events."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from orchestrator.domain.events import Event
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Heartbeat, Phase
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.pricing.spending import BEFORE

KINDS = {
    "provision": "being made",
    "setup": "boot, setup, restore",
    "train": "training",
    "lost": "lost work",
    "idle": "idle",
    "vm": "VM runs",
    "unknown": "not known",
}
"""Kinds of bars with the words for people."""
OVER = frozenset({Phase.ENDED, Phase.DONE, Phase.UNCLAIMED, Phase.FAILED, Phase.STOPPED})


@dataclass(frozen=True)
class Bar:
    """Hold a stretch of one machine's time, in seconds since the epoch; *kind* is a key of KINDS."""

    since: float
    until: float
    kind: str


@dataclass(frozen=True)
class TimelineMark:
    """Hold a moment on a machine's line: *kind* is preempted, done or failed."""

    at: float
    kind: str


@dataclass(frozen=True)
class Lane:
    """Hold the line of one machine. *steps* says in words which steps it trained; *lives* that it exists."""

    name: str
    zone: str
    bars: tuple[Bar, ...]
    marks: tuple[TimelineMark, ...] = ()
    steps: str = ""
    lives: bool = False


@dataclass(frozen=True)
class Timeline:
    """Hold all lines and the time that they cover."""

    since: float
    until: float
    lanes: tuple[Lane, ...]


def timeline(
    spans: Sequence[Span], beats: Sequence[Heartbeat], events: Sequence[Event], now: float
) -> Timeline:
    """Return the lines of all machines that ever were, up to *now* or to the end of the last of them."""
    last = {beat.incarnation: beat for beat in beats if beat.worker == 0}
    nodes = sorted((span for span in spans if span.kind is Kind.NODE), key=lambda span: span.since)
    lanes = [
        _node(
            span, last.get(incarnation_of(span.name, {}) or 0), events, now, followed=index + 1 < len(nodes)
        )
        for index, span in enumerate(nodes)
    ]
    vms: dict[tuple[str, str], list[Span]] = {}
    for span in spans:
        if span.kind is Kind.VM:
            vms.setdefault((span.name, span.zone), []).append(span)
    for (name, zone), lives in vms.items():
        bars = tuple(Bar(span.since, _end(span, now), "vm") for span in lives)
        lanes.append(Lane(name, zone, bars, lives=any(span.until is None for span in lives)))
    since = min((span.since for span in spans), default=now)
    until = max((_end(span, now) for span in spans), default=now)
    return Timeline(since, max(until, since + 1.0), tuple(lanes))


def _end(span: Span, now: float) -> float:
    return max(span.since, now if span.until is None else span.until)


def _node(span: Span, beat: Heartbeat | None, events: Sequence[Event], now: float, *, followed: bool) -> Lane:
    """Return one TPU's line; *followed* says that another one took its place, so that unsaved work was lost."""
    end, number = _end(span, now), incarnation_of(span.name, {}) or 0
    lost = [e.at for e in events if e.kind == "preempted" and e.data.get("incarnation") == number]
    marks = [TimelineMark(min(max(at, span.since), end), "preempted") for at in lost[:1]]
    lives = span.until is None
    if beat is None or "boot" not in beat.timings:
        kind = "provision" if lives and beat is None else "unknown"
        return Lane(span.name, span.zone, (Bar(span.since, end, kind),), tuple(marks), lives=lives)
    if beat.phase in {Phase.DONE, Phase.UNCLAIMED, Phase.FAILED}:
        kind = "done" if beat.phase is Phase.DONE else "failed"
        marks.append(TimelineMark(min(beat.updated, end), kind))
    steps = "" if beat.step is None else f"steps {beat.resumed_from or 0} to {beat.step}"
    bars = tuple(bar for bar in _bars(span.since, end, beat, followed=followed) if bar.until > bar.since)
    return Lane(span.name, span.zone, bars, tuple(marks), steps, lives)


def _bars(since: float, end: float, beat: Heartbeat, *, followed: bool) -> list[Bar]:
    times = beat.timings
    boot = _within(since, times.get("boot"), end)
    # A job that tells no steps has trained since it was started, for all that is known.
    untold = "first_step" not in times and "spawned" in times and beat.phase not in BEFORE
    began = _within(boot, times["spawned"] if untold else times.get("first_step"), end)
    over = beat.phase in OVER
    worked = _within(began, beat.progress_at or beat.updated if over or followed else None, end)
    saved = _within(began, beat.committed_at, worked) if followed else worked
    saved = began if followed and beat.committed_at is None else saved
    if untold:
        known = _within(began, beat.updated if over or followed else None, end)
        kinds = ((since, "provision"), (boot, "setup"), (began, "unknown"), (known, "idle"), (end, ""))
        return [Bar(at, until, kind) for (at, kind), (until, _) in pairwise(kinds)]
    return [
        Bar(since, boot, "provision"),
        Bar(boot, began, "setup"),
        Bar(began, saved, "train"),
        Bar(saved, worked, "lost"),
        Bar(worked, end, "idle"),
    ]


def _within(low: float, value: float | None, high: float) -> float:
    # By clocks of several machines: a bar must never be negative or leave its machine's line.
    return high if value is None else min(max(low, value), high)
