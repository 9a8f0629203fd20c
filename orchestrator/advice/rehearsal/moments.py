"""When a rehearsal injects a failure: what people ask for, what is chosen otherwise, and whether it has come."""

import re
from dataclasses import dataclass
from enum import Enum

from orchestrator.domain.units import Duration


class Sign(Enum):
    """Name what a moment is told by."""

    STEP = "step"
    CHECKPOINT = "checkpoint"
    TIME = "time"
    LOG = "log"


@dataclass(frozen=True)
class Moment:
    """
    Hold one moment. *number* is the step, the count of checkpoints, or seconds; *pattern* belongs to LOG.

    A step counts over the whole job; all else is counted on the machine that is taken away. With *saved* it
    comes only when the job has a complete checkpoint.
    """

    sign: Sign
    number: float = 0.0
    pattern: str = ""
    saved: bool = False

    @classmethod
    def parse(cls, text: str) -> "Moment":
        """Read `step:100`, `checkpoint:2`, `time:90s` or `log:REGEX`; raise ValueError that says what is wrong."""
        word, _, value = text.partition(":")
        sign = next((one for one in Sign if one.value == word), None)
        if sign is None or not value:
            raise ValueError("write step:100, checkpoint:2, time:90s or log:REGEX")
        if sign is Sign.TIME:
            return cls(sign, Duration.parse(value))
        if sign is Sign.LOG:
            try:
                re.compile(value)
            except re.error as error:
                raise ValueError(f"{value!r} is not a regular expression: {error}") from error
            return cls(sign, pattern=value)
        least = 1 if sign is Sign.CHECKPOINT else 0
        if not value.isdecimal() or int(value) < least:
            raise ValueError(f"{sign.value}: needs a whole number from {least}")
        return cls(sign, int(value))

    def __str__(self) -> str:
        if self.sign is Sign.LOG:
            return f"log:{self.pattern}"
        value = str(Duration(self.number)) if self.sign is Sign.TIME else f"{self.number:.0f}"
        return f"{self.sign.value}:{value}"


@dataclass(frozen=True)
class Shown:
    """
    Hold what the machine that is to be taken away has shown so far.

    *step* is the newest that was reported or committed, *saves* counts the checkpoints that this machine
    completed, *saved* is the newest step that the job has one of (of step 0 nothing is lost); *seconds* have
    passed since the job's start on it.
    """

    step: int | None = None
    saves: int = 0
    saved: int = 0
    seconds: float = 0.0
    line: bool = False


@dataclass(frozen=True)
class Pace:
    """Hold what an undisturbed run has shown: its last step, how many checkpoints, and how long the job ran."""

    last_step: int | None
    saves: int
    seconds: float | None


def come(moment: Moment, shown: Shown) -> bool:
    """Say whether the moment has come."""
    if moment.saved and shown.saved <= 0:
        return False
    if moment.sign is Sign.STEP:
        return shown.step is not None and shown.step >= moment.number
    if moment.sign is Sign.CHECKPOINT:
        return shown.saves >= moment.number
    return shown.line if moment.sign is Sign.LOG else shown.seconds >= moment.number


def default_moment(number: int, count: int, target: int | None, pace: Pace | None) -> Moment:
    """
    Return the moment of failure *number* (from 1) of *count*, where nobody asked for one.

    By step where the job tells one, else after the machine's next checkpoint, else by time. Without an
    undisturbed run the first step that is heard of, or the first checkpoint, has to do.
    """
    if pace is None:
        return Moment(Sign.STEP, (target or 0) * number // (count + 2), saved=True)
    last = pace.last_step if pace.last_step is not None else target
    if pace.last_step is not None and last is not None:
        return Moment(Sign.STEP, last * number // (count + 2), saved=pace.saves > 1)
    if pace.saves > 1:
        return Moment(Sign.CHECKPOINT, 1)
    return Moment(Sign.TIME, round((pace.seconds or 0.0) * number / (count + 1), 1))
