"""Record one run of a rehearsal, from `up` to its end, and define the moments of its faults."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.advice.rehearsal.same_bytes import Digests
from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.plan import Outcome
from orchestrator.domain.text.units import Duration

UNREPORTED = frozenset({"", "commits"})
"""Values of `Heartbeat.progress_from` for a step that the job itself did not report."""


class Fault(Enum):
    """How a rehearsal takes machines away."""

    NOTICE = "notice"
    NO_NOTICE = "no-notice"
    SAVE = "save"
    RESTORE = "restore"
    TWICE = "twice"
    VM = "vm"


@dataclass(frozen=True)
class InjectedFault:
    """
    One injected fault, and what the job had reported before it.

    *step* is the last reported step, *committed* the newest committed checkpoint; *at* is in seconds since
    the epoch.
    """

    kind: Fault
    incarnation: int
    at: float
    step: int | None
    committed: int | None


@dataclass(frozen=True)
class RunCheckpoint:
    """A complete checkpoint and the incarnation that made it."""

    step: int
    incarnation: int


@dataclass(frozen=True)
class RunTotals:
    """Of an undisturbed run: its last step, number of checkpoints, and the job's run time in seconds."""

    last_step: int | None
    checkpoints: int
    seconds: float | None


@dataclass(frozen=True)
class ObservedRun:
    """
    What one run has shown; *heartbeats* are the last heartbeats of all incarnations.

    *checkpoints* are complete in the bucket, *written* also those observed only on a machine's disk, both in
    the order of observation. *steps* are all reported steps, *losses* (step, loss) by incarnation. *digests* are
    those of the files of the remaining checkpoints, by step. *log* is the end of the job's own output.
    """

    outcome: Outcome | None
    message: str = ""
    heartbeats: tuple[Heartbeat, ...] = ()
    faults: tuple[InjectedFault, ...] = ()
    checkpoints: tuple[RunCheckpoint, ...] = ()
    written: tuple[RunCheckpoint, ...] = ()
    steps: frozenset[int] = frozenset()
    losses: Mapping[int, tuple[tuple[int, float], ...]] = field(default_factory=dict)
    digests: Mapping[int, Digests] = field(default_factory=dict)
    torn: int = 0
    log: tuple[str, ...] = ()

    @property
    def done(self) -> bool:
        """Return whether the job reached its end."""
        return self.outcome is Outcome.DONE

    @property
    def chain(self) -> dict[int, Heartbeat]:
        """Return the last heartbeat of worker 0 of each incarnation, oldest first."""
        return {
            b.incarnation: b for b in sorted(self.heartbeats, key=lambda b: b.incarnation) if b.worker == 0
        }

    @property
    def tells_steps(self) -> bool:
        """Return whether the job reported steps of its own, besides those of its checkpoints."""
        return any(b.progress_from not in UNREPORTED for b in self.heartbeats)

    @property
    def silent(self) -> bool:
        """Return whether neither a step nor a checkpoint was ever observed."""
        committed = any(b.committed_step is not None for b in self.heartbeats)
        return not self.checkpoints and not self.steps and not committed

    @property
    def loss(self) -> float | None:
        """Return the last loss that the last incarnation reported."""
        chain = self.chain
        return chain[max(chain)].loss if chain else None

    @property
    def seconds(self) -> float | None:
        """Return the seconds from the first machine's boot to the last heartbeat, None without one."""
        if not self.heartbeats:
            return None
        started = min(b.timings.get("boot", b.updated) for b in self.heartbeats)
        return max(b.updated for b in self.heartbeats) - started

    @property
    def failed(self) -> Heartbeat | None:
        """Return the report of the worker whose job failed, or None."""
        ended = [b for b in self.heartbeats if b.phase is not Phase.DONE]
        return max(ended, key=lambda b: (b.incarnation, b.updated), default=None)

    @property
    def totals(self) -> RunTotals:
        """Return this run's totals, from which the moments of faults in the next run are derived."""
        last = max(self.steps, default=None) if self.tells_steps else None
        marks = [
            (b.updated, [b.timings.get(m, 0.0) for m in ("setup_done", "spawned")]) for b in self.heartbeats
        ]
        spans = [updated - max(begun) for updated, begun in marks if max(begun)]
        return RunTotals(last, len({s.step for s in self.checkpoints}), max(spans, default=None))


class Trigger(Enum):
    """What a moment is recognised by: a step, a checkpoint, elapsed time, or a line of the log."""

    STEP = "step"
    CHECKPOINT = "checkpoint"
    TIME = "time"
    LOG = "log"


@dataclass(frozen=True)
class Moment:
    """
    One moment; *number* is the step, the count of checkpoints, or seconds; *pattern* belongs to LOG.

    A step counts over the whole job; all else counts on the machine that is taken away. *saved* requires a
    complete checkpoint of the job.
    """

    trigger: Trigger
    number: float = 0.0
    pattern: str = ""
    saved: bool = False

    @classmethod
    def parse(cls, text: str) -> "Moment":
        """Parse `step:100`, `checkpoint:2`, `time:90s` or `log:REGEX`; raise ValueError that says what is wrong."""
        word, _, value = text.partition(":")
        trigger = next((one for one in Trigger if one.value == word), None)
        if trigger is None or not value:
            raise ValueError("write step:100, checkpoint:2, time:90s or log:REGEX")
        if trigger is Trigger.TIME:
            return cls(trigger, Duration.parse(value))
        if trigger is Trigger.LOG:
            try:
                # Compiled now, so that a broken pattern does not end a rehearsal after minutes.
                re.compile(value)
            except re.error as error:
                raise ValueError(f"{value!r} is not a regular expression: {error}") from error
            return cls(trigger, pattern=value)
        least = 1 if trigger is Trigger.CHECKPOINT else 0
        if not value.isdecimal() or int(value) < least:
            raise ValueError(f"{trigger.value}: needs a whole number from {least}")
        return cls(trigger, int(value))

    def __str__(self) -> str:
        if self.trigger is Trigger.LOG:
            return f"log:{self.pattern}"
        value = str(Duration(self.number)) if self.trigger is Trigger.TIME else f"{self.number:.0f}"
        return f"{self.trigger.value}:{value}"


@dataclass(frozen=True)
class Shown:
    """
    What the machine to be taken away has shown so far.

    *step* is the newest reported or committed one, *checkpoints* is how many this machine
    completed, *saved* is the step of the job's newest one (0 means nothing to lose); *seconds* have passed since
    the job's start on it.
    """

    step: int | None = None
    checkpoints: int = 0
    saved: int = 0
    seconds: float = 0.0
    line: bool = False


def come(moment: Moment, shown: Shown) -> bool:
    """Return whether the machine has shown what *moment* waits for, so that the fault is injected now."""
    # A fault before the first checkpoint proves nothing about a resume.
    if moment.saved and shown.saved <= 0:
        return False
    if moment.trigger is Trigger.STEP:
        return shown.step is not None and shown.step >= moment.number
    if moment.trigger is Trigger.CHECKPOINT:
        return shown.checkpoints >= moment.number
    return shown.line if moment.trigger is Trigger.LOG else shown.seconds >= moment.number


def default_moment(number: int, count: int, target: int | None, undisturbed: RunTotals | None) -> Moment:
    """
    Return the default moment of fault *number* (from 1) of *count*.

    By step if the job reports steps, else after the machine's next checkpoint, else by time. Without an
    undisturbed run it is the first reported step, or the first checkpoint.
    """
    if undisturbed is None:
        return Moment(Trigger.STEP, (target or 0) * number // (count + 2), saved=True)
    last = undisturbed.last_step if undisturbed.last_step is not None else target
    if undisturbed.last_step is not None and last is not None:
        # count + 2 parts, so that the last fault leaves the job time to resume and to end.
        return Moment(Trigger.STEP, last * number // (count + 2), saved=undisturbed.checkpoints > 1)
    if undisturbed.checkpoints > 1:
        return Moment(Trigger.CHECKPOINT, 1)
    return Moment(Trigger.TIME, round((undisturbed.seconds or 0.0) * number / (count + 1), 1))
