"""Keep the manifest of this worker's last commit, to compare files that are replaced in place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Optional, Sequence, Tuple

from orchestrator.agent.checkpoints.bucket_checkpoints import REPLACED, BucketCheckpoints
from orchestrator.agent.checkpoints.local_checkpoints import LocalCheckpoint, LocalCheckpoints
from orchestrator.agent.checkpoints.observed_save import FileState
from orchestrator.agent.side_threads import say
from orchestrator.contract.bucket.manifest import Manifest
from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.formats.reading.saved_files import POINTER, is_save

FILES = "files"


class LastManifest:
    """The manifest of the newest checkpoint, read once for each attempt."""

    def __init__(self, worker: int, checkpoints: BucketCheckpoints, local: LocalCheckpoints) -> None:
        self._worker = worker
        self._checkpoints = checkpoints
        self._local = local
        self._manifest: Optional[Manifest] = None

    def begin(self, manifest: Optional[Manifest] = None) -> None:
        """Set the manifest, or reset it so that it is read again."""
        self._manifest = manifest

    def manifest(self) -> Optional[Manifest]:
        """Return this worker's manifest of the newest checkpoint, None if there is none."""
        # Cached, because each read would list the bucket at every poll.
        if self._manifest is None:
            newest = self._checkpoints.newest()
            if newest is not None:
                self._manifest = self._checkpoints.part_of(newest.step, newest.incarnation, self._worker)
        return self._manifest

    def gives_way(self, floor: Optional[int]) -> bool:
        """
        Return whether the last commit was of single files and the job now saves in another format.

        Such files may have existed before the training, for example initial weights, with any number in their
        name.
        """
        format_ = self._local.format
        if floor is None or not format_.may_change or format_.chosen in ("", FILES):
            return False
        last = self.manifest()
        return last is not None and last.format == FILES

    def make_way(self, number: int) -> None:
        """Set aside single files with step *number* or later."""
        for one in [one for one in self._checkpoints.complete() if one.step >= number]:
            if self._checkpoints.manifest(one.step, one.incarnation, 0).format == FILES:
                say(f"step {one.step} of single files gives way to step {number}: the job saves otherwise")
                self._checkpoints.move_aside(one, REPLACED)


def is_earlier(checkpoint: LocalCheckpoint, last: Manifest) -> bool:
    """Return whether a save has an earlier step than the newest commit: then the job has started over."""
    own, before = checkpoint.own_step, last.own_step
    return own is not None and before is not None and own < before


def is_same(folder: Path, states: Sequence[FileState], manifest: Manifest) -> bool:
    """Return whether these files equal those of the manifest, ignoring growing files beside them."""
    held = {
        one.name: one
        for one in manifest.files
        if manifest.format != FILES or _is_relevant(one.name, one.size)
    }
    if {one.name for one in states} != set(held):
        return False
    if any(one.size != held[one.name].size for one in states):
        return False
    return all(sha256_of(folder / one.name) == held[one.name].sha256 for one in states)


@dataclass(frozen=True)
class CommittedFiles:
    """
    The files of the last commit, without those whose changes do not count.

    *besides* counts the commits since a save changed, in which only files beside it changed.
    """

    relevant: Tuple[FileState, ...] = ()
    saves: Tuple[FileState, ...] = ()
    besides: int = 0

    def then(self, states: Sequence[FileState], format_: str) -> CommittedFiles:
        """Return what to remember after a commit of *states*."""
        found = CommittedFiles.of(states, format_)
        return replace(found, besides=self.besides + 1) if found.saves == self.saves else found

    @staticmethod
    def of(states: Sequence[FileState], format_: str) -> CommittedFiles:
        """Return what to remember when *states* turn out to be committed already."""
        saves = tuple(one for one in states if format_ != FILES or is_save(one.name, one.size))
        return CommittedFiles(relevant(states, format_), saves)


def relevant(states: Sequence[FileState], format_: str) -> Tuple[FileState, ...]:
    """Return *states* without large single files that only lie beside the saves and may grow all the time."""
    return tuple(one for one in states if format_ != FILES or _is_relevant(one.name, one.size))


def _is_relevant(name: str, size: int) -> bool:
    return size <= POINTER or is_save(name, size)
