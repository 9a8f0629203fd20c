"""Bring the disk to the checkpoint that the attempt names, and move everything doubtful aside."""

from __future__ import annotations

import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import List, Optional, Sequence, Tuple

from orchestrator.agent.checkpoints.catalogue import Catalogue
from orchestrator.agent.checkpoints.links import make_links
from orchestrator.agent.checkpoints.local import RESTORING, LocalCheckpoints
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.gang import Attempt
from orchestrator.agent.settings import Settings
from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.formats.base import SavedState, Unit
from orchestrator.contract.machine_errors import SliceSizeError, TornError
from orchestrator.contract.manifest import Manifest, StoredFile, file_name, manifest_name
from orchestrator.contract.replacing import sync_folder

PARALLEL = 4


@dataclass(frozen=True)
class Restored:
    """
    Say what the job is given to resume from (empty: nothing) and what was moved or repaired on the way.

    *counted*: its saves tell no step, so that the checkpoint's number is one of saves.
    """

    path: str
    notes: Tuple[str, ...]
    counted: bool = False


NOTHING = Restored("", ())


class Restorer:
    """Restore this worker's part of a checkpoint."""

    def __init__(
        self, settings: Settings, bucket: JobBucket, catalogue: Catalogue, local: LocalCheckpoints
    ) -> None:
        self._settings = settings
        self._bucket = bucket
        self._catalogue = catalogue
        self._local = local

    def restore(self, attempt: Attempt) -> Restored:
        """
        Leave on disk no step after the attempt's and no unfinished one, and the attempt's own, proven whole.

        The format then makes the framework choose that step too. Raises TornError when the bucket's copy is
        not what its manifest says, SliceSizeError when the slice has another number of workers than the
        checkpoint.
        """
        if self._settings.checkpoints.in_bucket:
            step = attempt.resume_step
            return Restored("" if step is None else self._catalogue.path_of(step), ())
        local = self._local
        local.folder.mkdir(parents=True, exist_ok=True)
        if attempt.resume_step is None or attempt.resume_incarnation is None:
            return Restored("", tuple(self._put_doubtful_aside(attempt.resume_step)))
        manifest = self._manifest(attempt.resume_step, attempt.resume_incarnation)
        local.format.continue_as(manifest.format, _base_of(manifest))
        notes = self._put_doubtful_aside(attempt.resume_step)
        wrong = _difference(local.folder / manifest.folder, manifest)
        if wrong is not None:
            notes += self._replace(manifest, wrong)
        # After the files, because a link that leads nowhere would be taken for a checkpoint that is gone.
        make_links(local.folder, manifest.links)
        unit = _unit_of(manifest, local.format.find(local.folder))
        notes += local.format.repair(local.folder, unit)
        path = local.format.resume(str(local.folder), unit)
        return Restored(path, tuple(notes), counted=not manifest.proven)

    def discard(self, attempt: Attempt) -> None:
        """Take a torn checkpoint out of the choice: its manifest is kept under another name, then removed."""
        if attempt.resume_step is None or attempt.resume_incarnation is None:
            return
        name = manifest_name(attempt.resume_step, attempt.resume_incarnation, self._settings.worker)
        # A call that is repeated may meet its own first success.
        held = self._bucket.read(name)
        if held is not None:
            # Copy, then delete: killed in between, it is torn once more and nothing is lost.
            self._bucket.write(f"{name}.torn-{int(time.time())}", held.data)
            self._bucket.delete(name, held.generation)

    def _manifest(self, step: int, incarnation: int) -> Manifest:
        # A slice that grew has workers without a part; worker 0's manifest tells how many there were.
        workers = self._catalogue.manifest(step, incarnation, 0).workers
        if workers != self._settings.workers:
            raise SliceSizeError(
                f"the checkpoint of step {step} was saved by {workers} workers, this slice has "
                f"{self._settings.workers}; nothing was changed"
            )
        return self._catalogue.part_of(step, incarnation, self._settings.worker)

    def _put_doubtful_aside(self, step: Optional[int]) -> List[str]:
        for leftover in self._local.folder.glob(f"{RESTORING}*"):
            # What a restore that was killed had downloaded: it was never renamed, so it is no checkpoint.
            shutil.rmtree(str(leftover), ignore_errors=True)
        notes = []
        for one in self._local.steps():
            # The framework itself skips it, and the user may want its weights.
            if one.state is SavedState.NOT_RESUMABLE:
                continue
            if not one.complete or step is None or one.step > step:
                why = "after the step to resume from" if one.complete else f"{one.state.value} ({one.why})"
                place = self._local.put_aside(one.unit, torn=not one.complete)
                notes.append(f"{one.unit.name} is {why}, moved to {place}")
        return notes

    def _replace(self, manifest: Manifest, wrong: str) -> List[str]:
        """Bring the bucket's copy to the place of whatever has its name."""
        local, notes = self._local, []
        target = local.folder / manifest.folder
        names = tuple(one.name for one in manifest.files) if manifest.folder == "." else None
        there = any((target / name).exists() for name in names) if names is not None else target.is_dir()
        if there:
            name = manifest.folder if names is None else names[0]
            place = local.put_aside(Unit(manifest.step, name, manifest.folder, names), torn=True)
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
        # Checked before anything is renamed: the job never sees a file that is not as it was saved.
        if wrong:
            shutil.rmtree(str(temporary), ignore_errors=True)
            raise TornError(f"checkpoint of step {manifest.step}: {wrong[0]}")
        for file in manifest.files:
            if file.modified is not None:
                # Some programs go on from the youngest file, whatever its name.
                os.utime(str(temporary / file.name), ns=(file.modified, file.modified))
        if manifest.folder == ".":
            for file in manifest.files:
                (target / file.name).parent.mkdir(parents=True, exist_ok=True)
                (temporary / file.name).replace(target / file.name)
            shutil.rmtree(str(temporary))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            # One rename brings the whole folder: a kill leaves it under its temporary name or complete.
            temporary.rename(target)
        # The names must survive a reboot too; `download` has synced the bytes.
        sync_folder(self._local.folder)


def _difference(folder: Path, manifest: Manifest) -> Optional[str]:
    """Return how *folder* differs from the manifest, None when every file is the same. Extra files do not count."""
    for file in manifest.files:
        path = folder / file.name
        if not path.is_file():
            return f"{file.name} is missing"
        if path.stat().st_size != file.size:
            return f"{file.name} has {path.stat().st_size} bytes, not {file.size}"
        if sha256_of(path) != file.sha256:
            return f"{file.name} has another sha256 than its manifest"
    return None


def _unit_of(manifest: Manifest, units: Sequence[Unit]) -> Unit:
    """Return the unit on disk that holds the manifest's files, as the format names it, with the manifest's step."""
    names = {one.name for one in manifest.files}
    for one in units:
        if one.folder == manifest.folder and (one.files is None or names & set(one.files)):
            return replace(one, step=manifest.step)
    return Unit(manifest.step, manifest.folder, manifest.folder)


def _base_of(manifest: Manifest) -> Optional[str]:
    """Return the folder that holds the checkpoint, None where the folder of all checkpoints is one itself."""
    place = manifest.folder if manifest.folder != "." else manifest.files[0].name if manifest.files else ""
    flat = manifest.folder != "." or manifest.format in ("fairseq", "keras", "tf", "torch")
    return place.rpartition("/")[0] if flat else None
