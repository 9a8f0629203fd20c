"""
The crash-loop breaker: a newest checkpoint from which every start ends alike is taken out of the choice.

If going back does not help either, the checkpoint was not to blame, and it comes back.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from .catalogue import Catalogue
from .checkpoints import Checkpoint
from .gang import Attempt

ALIKE = 2
MOST_BACK = 2


def is_due(last: Attempt, wanted: Attempt, newest: Optional[Checkpoint]) -> bool:
    """
    Say whether to go one checkpoint back.

    ALIKE starts in a row from the newest checkpoint left with the same status and without progress. A
    checkpoint that the job wrote to the bucket itself is left alone: the job chooses among those.
    """
    return (
        newest is not None
        and newest.incarnation >= 0
        and newest.step == last.resume_step
        and wanted.same >= ALIKE
        and len(wanted.suspects) < MOST_BACK
    )


def go_back(catalogue: Catalogue, wanted: Attempt, newest: Checkpoint) -> Attempt:
    """
    Return the attempt from the checkpoint before; the same attempt when there is no other complete one.
    """
    older = [one for one in catalogue.complete() if one != newest]
    if not older:
        return wanted
    catalogue.suspect(newest)
    back = older[0]
    return replace(
        wanted,
        resume_step=back.step,
        resume_incarnation=back.incarnation,
        same=0,
        code=None,
        suspects=(*wanted.suspects, (newest.step, newest.incarnation)),
        reason=f"{wanted.same} starts from step {newest.step} ended alike, so its checkpoint is set aside "
        f"and the one before is taken; {wanted.reason}",
    )


def acquit(catalogue: Catalogue, attempt: Attempt) -> str:
    """
    Put the attempt's suspects back into the choice, and return words for what was tried.
    """
    for step, incarnation in attempt.suspects:
        catalogue.acquit(step, incarnation)
    steps = ", ".join(str(step) for step, _ in attempt.suspects)
    text = f"; going back from step {steps} did not help, so it is in the choice again"
    return text if steps else ""
