"""Restore the checkpoint of an attempt to the disk, and move everything doubtful aside."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.checkpoints.bucket_checkpoints import BucketCheckpoints
from orchestrator.agent.checkpoints.links import make_links
from orchestrator.agent.checkpoints.local_checkpoints import RESTORING, LocalCheckpoints
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.contract.bucket.manifest import Manifest, StoredFile, file_name, manifest_name
from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.formats.base import LocalSave, SaveState
from orchestrator.contract.machine_errors import DamagedError, SliceSizeError
from orchestrator.contract.replacing import sync_folder

PARALLEL = 4


@dataclass(frozen=True)
class Restored:
    """
    What the job resumes from ("" for nothing), and what was moved or repaired for it.

    *counted*: its saves have no step, so the checkpoint's number is a count of saves.
    """

    path: str
    notes: Tuple[str, ...]
    counted: bool = False


NOTHING = Restored("", ())


class Restorer:
    """Restores this worker's part of a checkpoint."""

    def __init__(
        self,
        settings: Settings,
        bucket: JobBucket,
        checkpoints: BucketCheckpoints,
        local: LocalCheckpoints,
    ) -> None:
        self._settings = settings
        self._bucket = bucket
        self._checkpoints = checkpoints
        self._local = local

    def restore(self, attempt: Attempt) -> Restored:
        """
        Make the disk hold the attempt's step, verified, and neither later nor unfinished ones.

        The format then makes the framework choose that step. Raise DamagedError if the bucket's copy differs
        from its manifest, SliceSizeError if the slice has another number of workers than the checkpoint.
        """
        self._local.restored.remember(self._local.folder, ())
        if self._settings.checkpoints.in_bucket:
            step = attempt.resume_step
            return Restored("" if step is None else self._checkpoints.path_of(step), ())
        local = self._local
        local.folder.mkdir(parents=True, exist_ok=True)
        if attempt.resume_step is None or attempt.resume_incarnation is None:
            return Restored("", tuple(self._quarantine_doubtful(attempt.resume_step)))
        manifest = self._manifest(attempt.resume_step, attempt.resume_incarnation)
        local.format.continue_as(manifest.format, _base_of(manifest))
        notes = self._quarantine_doubtful(attempt.resume_step)
        wrong = _difference(local.folder / manifest.folder, manifest)
        if wrong is not None:
            notes += self._replace(manifest, wrong)
        # After the files: a dangling link would be taken for a checkpoint that is missing.
        make_links(local.folder, manifest.links)
        save = _save_of(manifest, local.format.find(local.folder))
        notes += local.format.repair(local.folder, save)
        path = local.format.resume(str(local.folder), save)
        names = (one.name for one in manifest.files)
        local.restored.remember(local.folder / manifest.folder, names, manifest.format)
        return Restored(path, tuple(notes), counted=not manifest.proven)

    def discard(self, attempt: Attempt) -> None:
        """Set a torn checkpoint aside: its manifest is copied to another name, then deleted."""
        if attempt.resume_step is None or attempt.resume_incarnation is None:
            return
        name = manifest_name(attempt.resume_step, attempt.resume_incarnation, self._settings.worker)
        # A repeated call may find the result of its own first try.
        held = self._bucket.read(name)
        if held is not None:
            # Copy, then delete: after a kill in between the checkpoint is found torn again, and nothing is lost.
            self._bucket.write(f"{name}.torn-{int(time.time())}", held.data)
            self._bucket.delete(name, held.generation)

    def _manifest(self, step: int, incarnation: int) -> Manifest:
        # A slice that grew has workers without a part; worker 0's manifest has the former number.
        workers = self._checkpoints.manifest(step, incarnation, 0).workers
        if workers != self._settings.workers:
            raise SliceSizeError(
                f"the checkpoint of step {step} was saved by {workers} workers, this slice has "
                f"{self._settings.workers}; nothing was changed"
            )
        return self._checkpoints.part_of(step, incarnation, self._settings.worker)

    def _quarantine_doubtful(self, step: Optional[int]) -> List[str]:
        for partial in self._local.folder.glob(f"{RESTORING}*"):
            # Downloads of a restore that was killed: never renamed, so no checkpoint.
            shutil.rmtree(str(partial), ignore_errors=True)
        notes = []
        for one in self._local.checkpoints():
            # The framework itself skips it, and the user may want its weights.
            if one.state is SaveState.NOT_RESUMABLE:
                continue
            if not one.complete or step is None or one.step > step:
                message = (
                    "after the step to resume from" if one.complete else f"{one.state.value} ({one.message})"
                )
                place = self._local.quarantine(one.save, torn=not one.complete)
                notes.append(f"{one.save.name} is {message}, moved to {place}")
        return notes

    def _replace(self, manifest: Manifest, wrong: str) -> List[str]:
        """Put the bucket's copy in the place of whatever has its name. Return messages; raise DamagedError."""
        local, notes = self._local, []
        target = local.folder / manifest.folder
        names = tuple(one.name for one in manifest.files) if manifest.folder == "." else None
        there = any((target / name).exists() for name in names) if names is not None else target.is_dir()
        if there:
            name = manifest.folder if names is None else names[0]
            place = local.quarantine(LocalSave(manifest.step, name, manifest.folder, names), torn=True)
            notes.append(f"{name} differs from its manifest ({wrong}), moved to {place}")
        self._download(manifest, target)
        return notes

    def _download(self, manifest: Manifest, target: Path) -> None:
        temporary = self._local.folder / f"{RESTORING}{manifest.step}"
        temporary.mkdir()

        def fetch(file: StoredFile) -> str:
            path = temporary / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            name = file_name(manifest.step, manifest.incarnation, manifest.worker, file.name)
            if self._bucket.download(name, path, file.size) != file.sha256:
                return f"{file.name} has another sha256 than its manifest"
            held = path.stat().st_size
            return f"{file.name} has {held} bytes, not {file.size}" if held != file.size else ""

        with ThreadPoolExecutor(PARALLEL) as pool:
            wrong = [text for text in pool.map(fetch, manifest.files) if text]
        # Verified before any rename: the job never sees a file that differs from what was saved.
        if wrong:
            shutil.rmtree(str(temporary), ignore_errors=True)
            raise DamagedError(f"checkpoint of step {manifest.step}: {wrong[0]}")
        for file in manifest.files:
            if file.modified is not None:
                # Some programs resume from the file with the newest time, whatever its name.
                os.utime(str(temporary / file.name), ns=(file.modified, file.modified))
        if manifest.folder == ".":
            for file in manifest.files:
                (target / file.name).parent.mkdir(parents=True, exist_ok=True)
                # The checkpoint folder itself cannot be renamed. After a kill in between, the next restore
                # finds the difference and starts over.
                (temporary / file.name).replace(target / file.name)
            shutil.rmtree(str(temporary))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            # One rename for the whole folder: after a kill it has its temporary name or is complete.
            temporary.rename(target)
        # Makes the names survive a power loss, too; `download` has synced the bytes.
        sync_folder(self._local.folder)


def _difference(folder: Path, manifest: Manifest) -> Optional[str]:
    """Return how *folder* differs from the manifest, None if every file is the same; extra files are ignored."""
    for file in manifest.files:
        path = folder / file.name
        if not path.is_file():
            return f"{file.name} is missing"
        if path.stat().st_size != file.size:
            return f"{file.name} has {path.stat().st_size} bytes, not {file.size}"
        if sha256_of(path) != file.sha256:
            return f"{file.name} has another sha256 than its manifest"
    return None


def _save_of(manifest: Manifest, saves: Sequence[LocalSave]) -> LocalSave:
    """Return the save on disk with the manifest's files, as the format names it, with the manifest's step."""
    names = {one.name for one in manifest.files}
    for one in saves:
        if one.folder == manifest.folder and (one.files is None or names & set(one.files)):
            return replace(one, step=manifest.step)
    return LocalSave(manifest.step, manifest.folder, manifest.folder)


def _base_of(manifest: Manifest) -> Optional[str]:
    """Return the folder that holds the checkpoint, None if the checkpoint folder itself does."""
    place = manifest.folder if manifest.folder != "." else manifest.files[0].name if manifest.files else ""
    flat = manifest.folder != "." or manifest.format in ("fairseq", "keras", "tf", "torch")
    return place.rpartition("/")[0] if flat else None
