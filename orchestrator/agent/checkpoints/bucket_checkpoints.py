"""Look up complete checkpoints in the bucket, newest first."""

from __future__ import annotations

import contextlib
from typing import Dict, Iterator, List, Optional, Tuple

from orchestrator.agent.agreement.attempts import AttemptStore
from orchestrator.agent.cloud.storage import TIMEOUT, JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.agent.side_threads import say
from orchestrator.contract.bucket.completeness import CheckpointVerdict, CompleteCheckpoint, disposable, judge
from orchestrator.contract.bucket.manifest import Manifest, folder_name, manifest_name, parse, parse_name
from orchestrator.contract.bucket.object_names import CHECKPOINTS
from orchestrator.contract.formats.base import BucketSave, Format, Listing
from orchestrator.contract.formats.marker import step_of
from orchestrator.contract.machine_errors import AgentError, DamagedError, PreconditionError

SUSPECT = ".suspect"
REPLACED = ".replaced"
MAX_NAMED = 3
"""Checkpoints that a reason names at most, the newest of the skipped ones."""


class BucketCheckpoints:
    """The complete checkpoints in the bucket: committed by agents, or written there by the job's framework."""

    def __init__(self, settings: Settings, bucket: JobBucket, format_: Format) -> None:
        self._settings = settings.checkpoints
        self._bucket = bucket
        self._format = format_

    def newest(self, timeout: float = TIMEOUT) -> Optional[CompleteCheckpoint]:
        """
        Return the newest complete checkpoint, None if the bucket has none.

        Raise AgentError if that is unknown.
        """
        return next(self.complete(timeout), None)

    def complete(self, timeout: float = TIMEOUT) -> Iterator[CompleteCheckpoint]:
        """Yield complete checkpoints, newest step first, then newest incarnation."""
        return (one for one, _message in self._judged(timeout) if one is not None)

    def choice(self, timeout: float = TIMEOUT) -> Tuple[Optional[CompleteCheckpoint], str]:
        """Return the newest complete checkpoint and the reason, which names newer incomplete ones."""
        passed_over: List[str] = []
        for one, message in self._judged(timeout):
            if one is not None:
                return one, "; ".join([one.message, *passed_over[:MAX_NAMED]])
            passed_over += [message] if message else []
        return None, "; ".join(passed_over[:MAX_NAMED])

    def manifest(self, step: int, incarnation: int, worker: int) -> Manifest:
        """Return one worker's manifest. Raises DamagedError when it is missing or not valid."""
        name = manifest_name(step, incarnation, worker)
        held = self._bucket.read(name)
        if held is None:
            raise DamagedError(f"{name} is not there")
        return parse(held.data, name)

    def part_of(self, step: int, incarnation: int, worker: int) -> Manifest:
        """
        Return the manifest of a worker's part, worker 0's if that worker saved nothing. Raise DamagedError.

        A program that saves on its first machine only may read the files on all of them.
        """
        own = self.manifest(step, incarnation, worker)
        return own if own.files or worker == 0 else self.manifest(step, incarnation, 0)

    def folders(self, timeout: float = TIMEOUT) -> List[Tuple[int, str]]:
        """Return the folders of all checkpoints, complete or not, with their steps; newest first."""
        _names, folders = self._bucket.level(self.prefix(), timeout)
        named = [(step_of(folder.rstrip("/").rsplit("/", 1)[-1]), folder) for folder in folders]
        return sorted(((step, folder) for step, folder in named if step is not None), reverse=True)

    def completed(
        self, step: int, incarnation: int, timeout: float = TIMEOUT
    ) -> Optional[CompleteCheckpoint]:
        """Return the checkpoint of one step and incarnation, None if it is not complete."""
        return self._verdict(folder_name(step, incarnation), timeout).checkpoint

    def path_of(self, step: int) -> str:
        """Return where the job finds a checkpoint that it wrote to the bucket itself, "" if it was deleted."""
        found = (one for one in self._stored(TIMEOUT) if one.step == step and one.complete)
        name = next((one.name for one in found), "")
        return f"{self._settings.folder.rstrip('/')}/{name}" if name else ""

    def move_aside(self, one: CompleteCheckpoint, mark: str = SUSPECT) -> None:
        """Set a checkpoint aside without deleting it: *mark* is appended to the names of its manifests."""
        for name in self._bucket.level(folder_name(one.step, one.incarnation))[0]:
            held = self._bucket.read(name) if parse_name(name) else None
            if held is not None:
                # Copy, then delete: a kill in between leaves the checkpoint as it was. The generation
                # protects a manifest that a new save has written meanwhile.
                self._bucket.write(name + mark, held.data)
                self._bucket.delete(name, held.generation)

    def put_back(self, step: int, incarnation: int) -> None:
        """Restore a checkpoint that was set aside, unless a new save of that step exists."""
        for name in self._bucket.level(folder_name(step, incarnation))[0]:
            original = name[: -len(SUSPECT)]
            held = self._bucket.read(name) if name.endswith(SUSPECT) and parse_name(original) else None
            if held is not None:
                # Generation 0 (must not exist): a new save of this step wins, and the old one is dropped.
                with contextlib.suppress(PreconditionError):
                    self._bucket.write(original, held.data, 0)
                self._bucket.delete(name)

    def proven(self, step: Optional[int], incarnation: Optional[int]) -> bool:
        """Return whether a checkpoint itself contains its step; otherwise saves were only counted."""
        return (
            step is None
            or incarnation is None
            or incarnation < 0
            or self.manifest(step, incarnation, 0).proven
        )

    def _judged(self, timeout: float) -> Iterator[Tuple[Optional[CompleteCheckpoint], str]]:
        """Yield each checkpoint if it is complete, else None and what it lacks; newest first."""
        if self._settings.in_bucket:
            for one in self._stored(timeout):
                found = (
                    CompleteCheckpoint(one.step, message=f"the checkpoint is complete: {one.message}")
                    if one.complete
                    else None
                )
                yield found, f"{one.name or 'the folder'} is not complete: {one.message}"
            return
        for step, folder in self.folders(timeout):
            by_incarnation: Dict[int, str] = {}
            for inner in self._bucket.level(folder, timeout)[1]:
                number = step_of(inner.rstrip("/").rsplit("/", 1)[-1])
                if number is not None:
                    by_incarnation[number] = inner
            # Two incarnations may have saved the same step; the later one resumed from the earlier, so
            # it comes first.
            for number in sorted(by_incarnation, reverse=True):
                verdict = self._verdict(by_incarnation[number], timeout)
                lacks = f"step {step} of TPU #{number} is not complete: {verdict.message}"
                yield verdict.checkpoint, lacks if verdict.message else ""

    def _verdict(self, folder: str, timeout: float) -> CheckpointVerdict:
        sizes = self._bucket.sizes(folder, timeout)
        # A manifest may be deleted between list and read; the judge counts it as missing.
        held = {name: self._bucket.read(name, timeout) for name in sizes if parse_name(name)}
        return judge(sizes, {name: one.data if one else None for name, one in held.items()})

    def _stored(self, timeout: float) -> Iterator[BucketSave]:
        return self._format.stored(self._level(self.prefix(), timeout))

    def _level(self, prefix: str, timeout: float) -> Listing:
        """Return one level of the bucket; lower levels are listed on demand."""
        names, folders = self._bucket.level(prefix, timeout)

        def read(name: str) -> Optional[bytes]:
            held = self._bucket.read(prefix + name, timeout)
            return held.data if held is not None else None

        cut = len(prefix)
        return Listing(
            tuple(name[cut:] for name in names),
            tuple(folder[cut:] for folder in folders),
            has=lambda name: self._bucket.stat(prefix + name, timeout) is not None,
            read=read,
            below=lambda folder: self._level(prefix + folder, timeout),
        )

    def prefix(self) -> str:
        """Return where checkpoints are: the folder that the job writes to, or `checkpoints/`. Raise AgentError."""
        if not self._settings.in_bucket:
            return CHECKPOINTS
        name = self._settings.folder[len("gs://") :].partition("/")[0]
        if name != self._bucket.name:
            raise AgentError(f"{self._settings.folder} is not in the deployment's bucket {self._bucket.name}")
        return self._settings.prefix(self._bucket.prefix)


def retain(
    settings: Settings, bucket: JobBucket, checkpoints: BucketCheckpoints, attempts: AttemptStore
) -> None:
    """
    Delete old checkpoints: keep the newest complete ones and everything newer than the oldest of these.

    Worker 0 calls this. It does nothing if the framework manages checkpoints itself, or if a newer
    incarnation exists.
    """
    if settings.checkpoints.in_bucket:
        return
    complete = list(checkpoints.complete())
    old = disposable(complete, settings.checkpoints.keep)
    if not old:
        return
    doomed = [(step, bucket.list(folder)) for step, folder in checkpoints.folders() if step <= old[0]]
    # Checked after choosing: a machine that sleeps in between must not delete what its replacement has saved.
    if attempts.newer_incarnation() is not None:
        return
    for step, names in doomed:
        # Manifests first: after a kill in between, files without a manifest are no checkpoint; a manifest
        # without all of its files would be a torn one.
        for name in sorted(names, key=lambda one: (parse_name(one) is None, one)):
            bucket.delete(name)
        say(f"removed the checkpoint of step {step}: newer complete ones exist")
