"""
What the end of a job means. Pure.
"""

from __future__ import annotations

import enum
import signal
from dataclasses import dataclass
from typing import Optional


class Verdict(enum.Enum):
    """
    Name what the end of a job means.
    """

    DONE = "done"
    FAILED = "failed"
    OVERTAKEN = "overtaken"


@dataclass(frozen=True)
class Outcome:
    """
    Hold what the end of a job means, and why.
    """

    verdict: Verdict
    reason: str


def judge(
    exit_code: int, target: Optional[int], reported: Optional[int], committed: Optional[int]
) -> Outcome:
    """
    Judge a job that ended without being asked to.

    An exit code alone proves nothing. With a *target* the job is done when that step is committed, or was
    reported and the job left with status 0; without one, status 0 is done. A signal is never success.
    """
    if target is not None and committed is not None and committed >= target:
        return Outcome(Verdict.DONE, f"step {committed} is committed, the target is {target}")
    if exit_code != 0:
        return Outcome(Verdict.FAILED, f"the job {describe(exit_code)}")
    if target is None:
        return Outcome(Verdict.DONE, "the job left with status 0")
    if reported is not None and reported >= target:
        return Outcome(Verdict.DONE, f"step {reported} is reached, the target is {target}")
    at = "no step" if reported is None else f"step {reported}"
    return Outcome(Verdict.FAILED, f"the job left with status 0 at {at}, before the target {target}")


def describe(exit_code: int) -> str:
    """
    Return an exit status in words; a negative one is a signal.
    """
    if exit_code >= 0:
        return f"left with status {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
