"""Judge which checkpoints are complete, which one is newest, and which ones may be removed. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Dict, Iterable, List, Mapping, Optional, Sequence, Tuple

from orchestrator.contract.bucket.manifest import Manifest, file_name, parse, parse_name
from orchestrator.contract.machine_errors import DamagedError


@dataclass(frozen=True, order=True)
class CompleteCheckpoint:
    """A complete checkpoint; *incarnation* is -1 if the framework wrote it to the bucket itself."""

    step: int
    incarnation: int = -1
    workers: int = 1
    message: str = ""


@dataclass(frozen=True)
class CheckpointVerdict:
    """
    Judge the objects of one step and incarnation: a complete *checkpoint*, or in *message* what is missing.

    *manifests* are those that make it complete, else all readable ones. Without any manifest *message* is empty.
    """

    checkpoint: Optional[CompleteCheckpoint]
    manifests: Tuple[Manifest, ...]
    message: str = ""


def judge(sizes: Mapping[str, int], bodies: Mapping[str, Optional[bytes]]) -> CheckpointVerdict:
    """
    Judge one step of one incarnation from its objects' *sizes* and its manifests' *bodies*, both by name.

    Machines and controller call this same function to choose what the next start resumes from.
    """
    found, whole, damage = [], [], ""
    for name in sorted(bodies):
        key, body = parse_name(name), bodies[name]
        if key is None or body is None:
            continue
        try:
            manifest = parse(body, name)
        except DamagedError as error:
            damage = str(error)
            continue
        # Copied to another name by hand, or written by a job that may write to the whole bucket.
        if (manifest.step, manifest.incarnation, manifest.worker) != key:
            damage = f"{name} is the manifest of another checkpoint"
            continue
        found.append(manifest)
        lacks = _lacking(manifest, sizes)
        # Report the first damage: later ones often follow from it.
        damage = damage or lacks
        if not lacks:
            whole.append(manifest)
    # A bad manifest matters only if its worker is needed. Otherwise anyone who can write to the bucket could hide a
    # checkpoint by adding the manifest of a worker that the slice never had.
    made_of = _of_all_workers(whole)
    if made_of:
        return CheckpointVerdict(completed_by(made_of), made_of)
    return CheckpointVerdict(None, tuple(found), damage or _missing_message(found))


def completed_by(manifests: Sequence[Manifest]) -> Optional[CompleteCheckpoint]:
    """Return the checkpoint that these manifests of one step and incarnation complete, or None."""
    found = _of_all_workers(manifests)
    if not found:
        return None
    message = (
        f"the checkpoint is complete: all {len(found)} workers"
        if len(found) > 1
        else "the checkpoint is complete"
    )
    return CompleteCheckpoint(found[0].step, found[0].incarnation, len(found), message)


def _of_all_workers(manifests: Sequence[Manifest]) -> Tuple[Manifest, ...]:
    """
    Return one manifest from each worker of the slice, all of one attempt, or an empty tuple.

    Shards of two attempts are not one state of the model. A worker that saved nothing has a manifest without
    files; if all have, there is nothing to resume from.
    """
    tries: Dict[int, List[Manifest]] = {}
    for one in manifests:
        tries.setdefault(one.attempt, []).append(one)
    # The latest attempt is the one that the next start resumes from.
    for _attempt, same in sorted(tries.items(), reverse=True):
        workers = same[0].workers
        alike = {one.worker for one in same} == set(range(workers)) and all(
            one.workers == workers for one in same
        )
        if alike and any(one.files for one in same):
            return tuple(same)
    return ()


def _lacking(manifest: Manifest, sizes: Mapping[str, int]) -> str:
    """
    Return what is missing of the files that a manifest names, empty if nothing is.

    A worker that was suspended may write its manifest after its files were removed as old ones. A file of
    another size cannot be restored: if it counted, retention could remove the last restorable checkpoint.
    """
    for file in manifest.files:
        size = sizes.get(file_name(manifest.step, manifest.incarnation, manifest.worker, file.name))
        if size is None:
            return f"{file.name} of worker {manifest.worker} is missing"
        if size != file.size:
            return f"{file.name} of worker {manifest.worker} has {size} bytes, not {file.size}"
    return ""


def _missing_message(manifests: Sequence[Manifest]) -> str:
    if not manifests:
        return ""
    if not any(one.files for one in manifests):
        return "no manifest names a file"
    text = f"parts of {len({one.worker for one in manifests})} of {manifests[0].workers} workers"
    alike = len({one.attempt for one in manifests}) == 1
    return text if alike else f"{text}, and of different attempts"


def disposable(complete: Iterable[CompleteCheckpoint], keep: int) -> Tuple[int, ...]:
    """Return the complete steps that retention may remove: all but the newest *keep*, at least two."""
    steps = sorted({one.step for one in complete}, reverse=True)
    # At least two: if the newest one makes the job crash, the one before is needed.
    return tuple(steps[max(2, keep) :])


def made_progress(newest: Optional[CompleteCheckpoint], resume_step: Optional[int]) -> bool:
    """Return whether a gang that started from *resume_step* has since completed a checkpoint."""
    return newest is not None and (resume_step is None or newest.step > resume_step)
