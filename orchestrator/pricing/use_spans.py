"""
Say what the time on TPUs was used for.

It follows from the last heartbeat of each incarnation: time until its first step is starting or recovering, a
restart on the same TPU is starting, time after its last checkpoint is lost if the TPU was preempted, and time in
which no TPU trains is idle. Of steps that were made more than once the last ones count: the time of the others is
lost if another TPU made them again after a preemption, else repeated. If a job reported no step, the use of its
time is unknown.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from math import inf
from typing import NamedTuple

from orchestrator.contract.phase import Phase
from orchestrator.contract.training import Training
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span


class Use(Enum):
    """What time on machines was used for; the value is the word for people."""

    TRAINING = "training"
    LOST = "lost"
    REPEATED = "repeated"
    RECOVERING = "recovering"
    STARTING = "starting"
    IDLE = "idle"
    UNKNOWN = "not known"
    STORAGE = "storage"


OVER = frozenset({Phase.ENDED, Phase.DONE, Phase.UNCOMMITTED, Phase.FAILED, Phase.STOPPED})
"""Phases of a machine after the job's end on it."""
BEFORE = frozenset({Phase.BOOT, Phase.SETUP, Phase.RESTORE})
"""Phases of a machine before the job runs on it."""


@dataclass(frozen=True)
class UseSpan:
    """A span of time, in seconds since the epoch, and its use."""

    since: float
    until: float
    use: Use


def use_spans(
    spans: Sequence[Span], heartbeats: Sequence[Heartbeat], now: float, up_times: Sequence[float] = ()
) -> tuple[UseSpan, ...]:
    """
    Return what the time was used for, from the first TPU to *now*; time before that is idle.

    *up_times* are those at which `up` started the deployment: the first TPU after such a start does not
    recover from the one before.
    """
    found: list[UseSpan] = []
    for one in tpu_times(spans, heartbeats, up_times):
        span, following = one.span, one.following
        # Losers of a race are left out: the winner's time shows what the time was used for.
        if one.lost_race:
            continue
        # The old TPU may exist while its successor is created (docs/decisions/0001): no time counts twice.
        end = min(x for x in (span.until, following.since if following else None, now) if x is not None)
        found += one.uses(end)
        if following is not None:
            found.append(UseSpan(end, max(end, following.since), Use.RECOVERING))
    return tuple(part for part in found if part.until > part.since)


class CountedTraining(NamedTuple):
    """The training of one attempt; its steps after *floor* were made again, so that their time was for *again*."""

    training: Training
    floor: float
    again: Use

    @property
    def until(self) -> float:
        """Return the time until which its steps count."""
        one = self.training
        made = one.to_step - one.from_step
        share = min(1.0, max(0.0, (self.floor - one.from_step) / made)) if made > 0 else 1.0
        return one.began_at + share * (one.until - one.began_at)


@dataclass(frozen=True)
class TpuTime:
    """
    One TPU with its last heartbeat, None without one, and the TPU that has replaced it, if any.

    *first* is the use of the time until its first step, *counted* has the heartbeat's trainings.
    """

    span: Span
    heartbeat: Heartbeat | None
    first: Use
    following: Span | None
    lost_race: bool
    counted: tuple[CountedTraining, ...] = ()

    def uses(self, end: float) -> list[UseSpan]:
        """Return the uses of the TPU's time, up to *end*."""
        lost = self.following is not None
        exists = not lost and self.span.until is None
        return use_spans_of(
            self.span.since, max(self.span.since, end), self.heartbeat, self.first, self.counted,
            lost=lost, exists=exists,
        )  # fmt: skip


def tpu_times(
    spans: Sequence[Span], heartbeats: Sequence[Heartbeat], up_times: Sequence[float] = ()
) -> tuple[TpuTime, ...]:
    """Return the TPUs in the order of their creation; *up_times* as in `use_spans`."""
    every = sorted((span for span in spans if span.kind is Kind.NODE), key=lambda span: span.since)
    # Worker 0 stands for its slice, whose machines train in step (docs/decisions/0017).
    newest = {heartbeat.incarnation: heartbeat for heartbeat in heartbeats if heartbeat.worker == 0}
    lost = {id(span) for span in every if _lost_race(span, every, newest)}
    nodes = [span for span in every if id(span) not in lost]
    found = []
    for span in every:
        index = sum(1 for one in nodes if one.since < span.since) if id(span) in lost else nodes.index(span)
        before = nodes[index - 1] if index else None
        after = nodes[index + 1] if id(span) not in lost and index + 1 < len(nodes) else None
        # Where `up` started the deployment again in between, nothing replaced this TPU, and no work was lost.
        before, after = (
            one if one is not None and _lifetime(up_times, one) == _lifetime(up_times, span) else None
            for one in (before, after)
        )
        heartbeat = newest.get(incarnation_of(span.name, {}) or 0)
        first = Use.STARTING if before is None else Use.RECOVERING
        found.append(TpuTime(span, heartbeat, first, after, id(span) in lost))
    return _with_counted(found, up_times)


def _with_counted(times: Sequence[TpuTime], up_times: Sequence[float]) -> tuple[TpuTime, ...]:
    """Return the TPUs with what counts of their trainings: from the last one back, steps made again do not."""
    floor, floor_of, later = inf, -1, -1
    found: list[TpuTime] = []
    for number, one in reversed(list(enumerate(times))):
        heartbeat = one.heartbeat
        if heartbeat is None or one.lost_race:
            found.append(one)
            continue
        trainings, lifetime = heartbeat.trainings, _lifetime(up_times, one.span)
        marks = [training.from_step for training in trainings]
        if not marks and heartbeat.step is not None:
            marks = [heartbeat.start_step]
        elif one.following is None and _goes_back(heartbeat):
            marks.append(heartbeat.resumed_from or 0)
        counted = []
        for place in reversed(range(len(marks))):
            if place < len(trainings):
                # Only a TPU that was lost has cost steps by its preemption.
                lost = floor_of != number and later == lifetime
                counted.append(CountedTraining(trainings[place], floor, Use.LOST if lost else Use.REPEATED))
            if marks[place] < floor:
                floor, floor_of, later = marks[place], number, lifetime
        # After `up` a job that begins at its first step is another one.
        if one.first is Use.STARTING and floor == 0:
            floor = inf
        found.append(replace(one, counted=tuple(reversed(counted))))
    return tuple(reversed(found))


def _goes_back(heartbeat: Heartbeat) -> bool:
    """Return whether another attempt than those that have trained is under way, and known where it goes on."""
    trained = heartbeat.trained
    if not trained or len(heartbeat.trainings) > len(trained):
        return False
    # While the next attempt has not begun, nothing says that steps are repeated.
    return heartbeat.attempt != trained[-1].attempt and heartbeat.phase is not Phase.BOOT


def _lifetime(up_times: Sequence[float], span: Span) -> int:
    """Return the index of the deployment's lifetime in which a TPU was, by the number of `up` before it."""
    return sum(1 for time in up_times if time <= span.since)


def _lost_race(one: Span, nodes: Sequence[Span], heartbeats: Mapping[int, Heartbeat]) -> bool:
    """Return whether a TPU never trained because another one won its race; its time is no time of the job."""
    heartbeat = heartbeats.get(incarnation_of(one.name, {}) or 0)
    if one.until is None or (heartbeat is not None and "first_step" in heartbeat.timings):
        return False
    return any(
        s is not one and s.since < one.until and (s.until is None or s.until > one.until) for s in nodes
    )


def use_spans_of(
    since: float, end: float, heartbeat: Heartbeat | None, first: Use, counted: Sequence[CountedTraining],
    *, lost: bool, exists: bool,
) -> list[UseSpan]:  # fmt: skip
    """
    Return the uses of one TPU's time; *first* is the use of the time until its first step.

    *counted* has the trainings of its *heartbeat*, *lost* says that another TPU has replaced it, *exists* that it
    is there.
    """
    if heartbeat is None:
        # An existing TPU without a report is being prepared; for a deleted one the use is unknown.
        return [UseSpan(since, end, first if exists else Use.UNKNOWN)]
    found, ended = [], heartbeat.phase in OVER
    for earlier in counted[: len(heartbeat.trained)]:
        began = _within(since, earlier.training.began_at, end)
        useful = _within(began, earlier.until, end)
        until = _within(useful, earlier.training.until, end)
        found += [
            UseSpan(since, began, first),
            UseSpan(began, useful, Use.TRAINING),
            UseSpan(useful, until, earlier.again),
        ]
        # A push or a crash, and no preemption: what comes now is the way to the next step on the same TPU.
        since, first = until, Use.STARTING
    own = counted[len(heartbeat.trained) :]
    if heartbeat.trained and not own and ended:
        # The job was over already when its agent started again.
        return [*found, UseSpan(since, end, Use.IDLE)]
    if (
        not own
        and "first_step" not in heartbeat.timings
        and "spawned" in heartbeat.timings
        and heartbeat.phase not in BEFORE
    ):
        # The job ran and reported no step: how much of it was training is unknown.
        began = _within(since, heartbeat.timings["spawned"], end)
        over = heartbeat.phase in {Phase.DONE, Phase.FAILED, Phase.STOPPED}
        until = _within(began, heartbeat.updated if over else None, end)
        return [
            *found,
            UseSpan(since, began, first),
            UseSpan(began, until, Use.UNKNOWN),
            UseSpan(until, end, Use.IDLE),
        ]
    # The time of a first step stays in the report until the next attempt makes one.
    began = end if heartbeat.trained and not own else _within(since, heartbeat.timings.get("first_step"), end)
    again = [one for one in own if one.floor < one.training.to_step]
    if ended and not lost:
        useful, rest = _within(began, heartbeat.progress_at or heartbeat.updated, end), Use.IDLE
    elif lost:
        # A machine that had saved its last step lost no work: the rest is already part of the recovery.
        saved = heartbeat.step is not None and (heartbeat.committed_step or -1) >= heartbeat.step
        useful, rest = (
            _within(began, heartbeat.committed_at or began, end),
            Use.RECOVERING if saved else Use.LOST,
        )
        # The next TPU makes more of its steps again than it had not saved: the job ignores its checkpoint.
        again = [one for one in again if one.floor < (heartbeat.committed_step or 0)]
    else:
        useful, rest = end, Use.IDLE
    counts_until = min([useful, *(_within(began, one.until, end) for one in again)])
    return [
        *found, UseSpan(since, began, first), UseSpan(began, counts_until, Use.TRAINING),
        UseSpan(counts_until, useful, again[0].again if again else Use.REPEATED), UseSpan(useful, end, rest),
    ]  # fmt: skip


def _within(low: float, value: float | None, high: float) -> float:
    # Reports have the machine's clock, spans have not: a time outside of its span is moved to its edge.
    return high if value is None else min(max(low, value), high)
