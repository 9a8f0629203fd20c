"""Which checkpoint is complete, which one is newest, which ones may go. Pure: no files, no network."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Optional, Sequence, Tuple

from orchestrator.contract.manifest import Manifest


@dataclass(frozen=True, order=True)
class Checkpoint:
    """Name a complete checkpoint. *incarnation* is -1 where the framework wrote it to the bucket itself."""

    step: int
    incarnation: int = -1
    workers: int = 1
    why: str = ""


def completed_by(manifests: Sequence[Manifest]) -> Optional[Checkpoint]:
    """
    Return the checkpoint that these manifests of one step and incarnation make complete, or None.

    Complete means one manifest from each worker of the slice, all of one attempt: shards of two
    attempts are not one state of the model. Workers that saved nothing have manifests without files, but
    not all of them: nothing could go on from that.
    """
    tries: Dict[int, List[Manifest]] = {}
    for one in manifests:
        tries.setdefault(one.attempt, []).append(one)
    for _attempt, same in sorted(tries.items(), reverse=True):
        workers = same[0].workers
        alike = {one.worker for one in same} == set(range(workers)) and all(
            one.workers == workers for one in same
        )
        if alike and any(one.files for one in same):
            why = f"manifests of all {workers} workers" if workers > 1 else "manifest"
            return Checkpoint(same[0].step, same[0].incarnation, workers, f"checkpoint complete: {why}")
    return None


def disposable(complete: Iterable[Checkpoint], keep: int) -> Tuple[int, ...]:
    """Return the complete steps that retention may remove: all but the newest *keep*, and never fewer than two."""
    steps = sorted({one.step for one in complete}, reverse=True)
    return tuple(steps[max(2, keep) :])


def made_progress(newest: Optional[Checkpoint], resume_step: Optional[int]) -> bool:
    """Say whether a gang that started from *resume_step* has since completed a checkpoint."""
    return newest is not None and (resume_step is None or newest.step > resume_step)
