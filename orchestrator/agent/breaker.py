"""
The crash-loop breaker: a newest checkpoint from which every start ends alike is taken out of the choice.

If going back does not help either, the checkpoint was not to blame, and it comes back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Iterable, Optional, Sequence, Tuple

from orchestrator.agent.catalogue import Catalogue
from orchestrator.agent.gang import Attempt
from orchestrator.contract.completeness import Checkpoint

ALIKE = 2
MOST_BACK = 2


def is_due(last: Attempt, wanted: Attempt, newest: Optional[Checkpoint]) -> bool:
    """
    Say whether to go one checkpoint back.

    ALIKE starts in a row from the newest checkpoint left with the same status and without progress.
    """
    return (
        newest is not None
        and newest.step == last.resume_step
        and wanted.same >= ALIKE
        and len(wanted.suspects) < MOST_BACK
    )


def go_back(catalogue: Catalogue, wanted: Attempt, newest: Checkpoint) -> Attempt:
    """
    Return the attempt from the checkpoint before; the same attempt when there is no other complete one.

    What the job wrote to the bucket itself stays as it is, because it may look there for the newest one:
    only what it is given to resume from changes.
    """
    suspects = (*wanted.suspects, (newest.step, newest.incarnation))
    back = newest_but(catalogue.complete(), suspects)
    if back is None:
        return wanted
    if newest.incarnation >= 0:
        catalogue.suspect(newest)
    return replace(
        wanted,
        resume_step=back.step,
        resume_incarnation=back.incarnation if back.incarnation >= 0 else None,
        same=0,
        code=None,
        suspects=suspects,
        reason=f"{wanted.same} starts from step {newest.step} ended alike, so the checkpoint before "
        f"is taken; {wanted.reason}",
    )


def newest_but(complete: Iterable[Checkpoint], suspects: Sequence[Tuple[int, int]]) -> Optional[Checkpoint]:
    """Return the newest checkpoint that is none of the *suspects*. Pure."""
    return next((one for one in complete if (one.step, one.incarnation) not in suspects), None)


def going_back_text(attempt: Attempt, place: str) -> str:
    """Say which checkpoints an attempt passes over, empty for none; *place* is the job's folder in the bucket."""
    if not attempt.suspects:
        return ""
    steps = " and ".join(str(step) for step, _ in attempt.suspects)
    text = (
        f"{ALIKE} starts in a row from step {steps} failed alike, so this one is from step "
        f"{attempt.resume_step}; nothing is deleted"
    )
    if all(incarnation >= 0 for _, incarnation in attempt.suspects):
        return text
    return (
        f"{text}. A job that does not read TPUCTL_RESUME finds step {steps} in {place} all the same: if it "
        "fails again, move that away"
    )


def acquit(catalogue: Catalogue, attempt: Attempt) -> str:
    """Put the attempt's suspects back into the choice, and return words for what was tried."""
    for step, incarnation in attempt.suspects:
        if incarnation >= 0:
            catalogue.acquit(step, incarnation)
    steps = ", ".join(str(step) for step, _ in attempt.suspects)
    text = f"; going back from step {steps} did not help, so it is in the choice again"
    return text if steps else ""
