"""
Break a crash loop: set aside a newest checkpoint from which every start fails in the same way.

If the one before it fails too, the checkpoint was not the cause, and it is put back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Optional, Sequence, Tuple

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.checkpoints.bucket_checkpoints import BucketCheckpoints
from orchestrator.contract.bucket.completeness import CompleteCheckpoint

ALIKE = 2
MAX_BACK = 2
OF_THE_CODE = ("NameError: ", "SyntaxError: ", "IndentationError: ")
"""Beginnings of a last line that names an error in the program: no checkpoint brings it, and no older one helps."""


def should_go_back(last: Attempt, wanted: Attempt, newest: Optional[CompleteCheckpoint]) -> bool:
    """
    Return whether to resume from a checkpoint before *newest*.

    The condition: ALIKE consecutive attempts from it ended with the same status and without progress. Status 0
    is that of a program which had nothing to do, and a step that was trained again is no suspect twice. An error
    OF_THE_CODE is no checkpoint's.
    """
    return (
        newest is not None
        and newest.step == last.resume_step
        and wanted.code != 0
        and not wanted.ended_line.startswith(OF_THE_CODE)
        and wanted.same >= ALIKE
        and len(wanted.suspects) < MAX_BACK
        and newest.step not in {step for step, _ in wanted.suspects}
    )


def go_back(checkpoints: BucketCheckpoints, wanted: Attempt, newest: CompleteCheckpoint) -> Attempt:
    """
    Return the attempt from the checkpoint before *newest*; *wanted* itself if there is no other one.

    Checkpoints that the job itself wrote to the bucket are not renamed, since the job may search there: only
    the value of TPUCTL_RESUME changes.
    """
    suspects = (*wanted.suspects, (newest.step, newest.incarnation))
    back = newest_but(checkpoints.complete(), suspects)
    if back is None:
        return wanted
    # Only checkpoints that agents committed are renamed; those that the job wrote have incarnation -1.
    if newest.incarnation >= 0:
        checkpoints.move_aside(newest)
    return replace(
        wanted,
        resume_step=back.step,
        resume_incarnation=back.incarnation if back.incarnation >= 0 else None,
        same=0,
        code=None,
        suspects=suspects,
        message=f"{wanted.same} attempts from step {newest.step} ended alike, so the checkpoint before "
        f"is taken, and nothing is deleted; {wanted.message}",
    )


def newest_but(
    complete: Iterable[CompleteCheckpoint], suspects: Sequence[Tuple[int, int]]
) -> Optional[CompleteCheckpoint]:
    """Return the newest checkpoint that is not one of *suspects*, None if there is none."""
    return next((one for one in complete if (one.step, one.incarnation) not in suspects), None)


def aside_text(attempt: Attempt, folder: str) -> str:
    """Return which checkpoints an attempt skips, "" for none; *folder* is the job's prefix in the bucket."""
    if not attempt.suspects:
        return ""
    steps = " and ".join(f"step {step}" for step, _ in attempt.suspects)
    one = len(attempt.suspects) == 1
    text = (
        f"{steps} {'is' if one else 'are'} set aside, not deleted: {ALIKE} attempts in a row from "
        f"{'it' if one else 'each'} failed alike"
    )
    if all(incarnation >= 0 for _, incarnation in attempt.suspects):
        return text
    return (
        f"{text}. A job that does not read TPUCTL_RESUME finds {steps} in {folder} all the same: if it "
        "fails again, move that away"
    )


def put_back(checkpoints: BucketCheckpoints, attempt: Attempt) -> None:
    """Put the attempt's suspects back."""
    for step, incarnation in attempt.suspects:
        if incarnation >= 0:
            checkpoints.put_back(step, incarnation)
