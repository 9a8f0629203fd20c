"""Judge the end of a job. Pure."""

from __future__ import annotations

import enum
import re
import signal
from dataclasses import dataclass, replace
from typing import Optional

from orchestrator.contract.agent_lines import is_agent_line
from orchestrator.contract.formats.base import Format

_INFRASTRUCTURE = re.compile(
    rb"already in use by process|no accelerator found|iommu group|/dev/(?:vfio|accel)[^\n]*(?:busy|in use)",
    re.IGNORECASE,
)
"""Messages of libtpu when the machine's devices are in use or missing."""


LAST_LINE = 300
FROM_SIGNAL = 128
"""From this status on a shell reports a signal, which says nothing about the last line printed."""


class JobOutcomeKind(enum.Enum):
    """
    The meaning of a job's end.

    UNCOMMITTED is status 0 with nothing committed: neither a new start nor a claim of success may follow. STOPPED
    is an early, orderly end, if its work was saved. EXCUSED is not the job's fault.
    """

    DONE = "done"
    UNCOMMITTED = "uncommitted"
    FAILED = "failed"
    STOPPED = "stopped"
    EXCUSED = "excused"
    OVERTAKEN = "overtaken"


class UserCommand(enum.Enum):
    """What the agent runs for the user, as reasons name it."""

    JOB = "the job"
    SETUP = "the setup command"


@dataclass(frozen=True)
class JobOutcome:
    """The meaning of a job's end and the reason; *code* is the exit status, *line* the last one printed, if any."""

    kind: JobOutcomeKind
    message: str
    code: Optional[int] = None
    line: str = ""


def outcome_of(
    exit_code: int,
    target: Optional[int],
    reported: Optional[int],
    committed: Optional[int],
    framework: Optional[Format] = None,
    command: UserCommand = UserCommand.JOB,
) -> JobOutcome:
    """
    Judge a job, or another *command* of the user, that ended without being asked to.

    With a *target*, the job is done if that step is committed, or if it was reported and the exit status is
    0. Without one, status 0 means done, unless the *framework* also uses it for an early stop. A signal is
    never success.
    """
    # Before the status: many programs are killed while they clean up after their last save.
    if target is not None and committed is not None and committed >= target:
        return JobOutcome(
            JobOutcomeKind.DONE, f"step {committed} is saved in the bucket, the target is {target}", exit_code
        )
    stopped = framework is not None and exit_code in framework.stopped_codes
    ended = JobOutcomeKind.STOPPED if stopped else JobOutcomeKind.FAILED
    if exit_code != 0:
        early = ", which may be an early stop in good order" if stopped else ""
        return JobOutcome(ended, f"{command.value} {describe(exit_code)}{early}", exit_code)
    if target is None:
        if framework is None or framework.zero_proves:
            return JobOutcome(JobOutcomeKind.DONE, f"{command.value} exited with status 0", exit_code)
        message = f"the job exited with status 0, which format {framework.name} uses for an early stop too"
        return JobOutcome(ended, message, exit_code)
    if reported is not None and reported >= target:
        return JobOutcome(
            JobOutcomeKind.DONE, f"step {reported} is reached, the target is {target}", exit_code
        )
    if reported is None and committed is None:
        message = (
            f"the job exited with status 0, but told no step that can prove the target {target}: "
            "set a pattern in job.progress, or name the step in its saves"
        )
        return JobOutcome(ended, message, exit_code)
    at = "without a new step" if reported is None else f"at step {reported}"
    return JobOutcome(
        ended,
        f"the job exited with status 0 {at}, before the target {target}: is its own number of steps lower?",
        exit_code,
    )


def settle(outcome: JobOutcome, *, committed: Optional[int], saved: bool, output: bytes) -> JobOutcome:
    """Refine an outcome by what is *committed*, whether anything new was *saved*, and the output."""
    if outcome.code == 0 and committed is None:
        # A restart from step 0 would repeat all of the training and end in the same way.
        return JobOutcome(JobOutcomeKind.UNCOMMITTED, outcome.message, outcome.code)
    if outcome.kind is JobOutcomeKind.STOPPED:
        if saved:
            return JobOutcome(JobOutcomeKind.EXCUSED, f"{outcome.message}; its work is saved", outcome.code)
        outcome = JobOutcome(JobOutcomeKind.FAILED, f"{outcome.message}; nothing new is saved", outcome.code)
    # For failures only, because a job may print such a line and recover.
    if outcome.kind is not JobOutcomeKind.FAILED or not outcome.code:
        return outcome
    found = _INFRASTRUCTURE.search(output)
    if found is None:
        return with_last_line(outcome, outcome.code, output)
    text = found[0].decode("utf-8", "replace")
    return JobOutcome(
        JobOutcomeKind.EXCUSED, f"{outcome.message}; the machine's fault: {text!r}", outcome.code
    )


def with_last_line(outcome: JobOutcome, exit_code: int, output: bytes) -> JobOutcome:
    """Add to the message of a failure the last line printed, which names the error in most programs."""
    if not 0 < exit_code < FROM_SIGNAL:
        return outcome
    for line in reversed(output.decode("utf-8", "replace").splitlines()):
        text = "".join(one for one in line if one.isprintable()).strip()
        # Lines of the agent's own stand in the same log.
        if text and not is_agent_line(text):
            last = f"{text[:LAST_LINE]}{'...' if len(text) > LAST_LINE else ''}"
            return replace(outcome, message=f"{outcome.message}: {last}", line=last)
    return outcome


def describe(exit_code: int) -> str:
    """Describe an exit status; negative values are signals."""
    if exit_code >= 0:
        return f"exited with status {exit_code}"
    try:
        return f"was ended by {signal.Signals(-exit_code).name}"
    except ValueError:
        return f"was ended by signal {-exit_code}"
