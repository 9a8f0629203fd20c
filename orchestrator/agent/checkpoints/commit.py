"""Commit finished checkpoints: upload, verify that nothing changed meanwhile, write the manifest last."""

from __future__ import annotations

import contextlib
import math
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import List, Optional, Set, Tuple

from orchestrator.agent.agreement.attempts import AttemptStore
from orchestrator.agent.agreement.saves import SaveAgreement
from orchestrator.agent.checkpoints import last_manifest
from orchestrator.agent.checkpoints.bucket_checkpoints import BucketCheckpoints
from orchestrator.agent.checkpoints.links import links_of
from orchestrator.agent.checkpoints.local_checkpoints import (
    LocalCheckpoint,
    LocalCheckpoints,
    files_below,
)
from orchestrator.agent.checkpoints.observed_save import FileState
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.agent.side_threads import say
from orchestrator.agent.telemetry.heartbeat import HeartbeatContent
from orchestrator.contract.bucket.manifest import Manifest, StoredFile, file_name, manifest_name, parse
from orchestrator.contract.clock import Clock
from orchestrator.contract.formats.base import LocalSave, SaveState
from orchestrator.contract.formats.outputs import outputs_in
from orchestrator.contract.formats.reading.saved_files import replaced_in_place
from orchestrator.contract.machine_errors import DamagedError, FencedError, PreconditionError

PARALLEL = 4
BESIDES = 2
"""Commits of one step, at most, for which only files beside the save, such as `latest`, have changed."""
RECENT = 64
"""Commits that the heartbeat names, newest first, so that readers find the step that all workers have."""
APART = 2
"""How many saves apart the newest ones of a gang's workers may be: they train in step."""
WITHOUT_US = 2
"""Saves of worker 0 after which a worker that has written nothing counts as having no part in them."""


class Committer:
    """Commits complete local checkpoints to the bucket, or records those that the job writes there itself."""

    def __init__(
        self, settings: Settings, bucket: JobBucket, *, checkpoints: BucketCheckpoints, attempts: AttemptStore,
        local: LocalCheckpoints, heartbeat: HeartbeatContent, clock: Clock,
    ) -> None:  # fmt: skip
        self._settings, self._bucket, self._clock = settings, bucket, clock
        self._checkpoints = checkpoints
        self._attempts = attempts
        self._local = local
        self._heartbeat = heartbeat
        self._lock = threading.Lock()
        self._attempt, self._start, self._in_bucket = 0, -1, settings.checkpoints.in_bucket
        self._floor: Optional[int] = None
        self._newest = last_manifest.LastManifest(settings.worker, checkpoints, local)
        self._agreement = SaveAgreement(settings, bucket, clock)
        self._same = last_manifest.CommittedFiles()
        self._before: Tuple[FileState, ...] = ()
        self._followed: Set[int] = set()
        self._pause: Optional[float] = None
        self.proven: Optional[int] = None

    def begin(
        self, attempt: int, floor: Optional[int], *, proven: bool = True, starting: bool = False
    ) -> None:
        """
        Start committing for *attempt*, only steps after *floor*; *proven*: a save itself names that step.

        *starting*: the job is about to start, so files that are in the folder now are not its own.
        """
        with self._lock:
            self._attempt, self._floor = attempt, floor
            self._same = last_manifest.CommittedFiles()
            # Files of an earlier start or of the bundle do not prove that this worker saves anything.
            self._before = files_below(self._local.folder) if starting and not self._in_bucket else ()
            self._start, self._followed, self._pause = -1 if floor is None else floor, set(), None
            self._newest.begin()
            self._agreement.begin(attempt)
            self.proven = floor if proven else None

    def end(self) -> None:
        """Stop committing until the next `begin`; wait for a running commit, as the restore may move files."""
        self.begin(0, None)

    def commit(self) -> bool:
        """
        Commit what is finished and new; return whether anything was committed.

        Raise FencedError, AgentError or OSError; the next call retries what failed.
        """
        with self._lock:
            began, self._pause = self._clock.monotonic(), None
            if not self._attempt or self._local.format.at_end:
                return False
            if self._in_bucket:
                return self._note()
            whole = [one for one in self._local.checkpoints() if one.complete]
            self._heartbeat.set(format=self._local.format.chosen)
            pending = self._pending(whole)
            self._commit_all(pending)
            # A gang leaves a later save until it has agreed on it.
            floor = self._floor_of_saves() if self._settings.workers > 1 else math.inf
            live = [one for one in whole if one.save.live and one.step <= floor]
            changed = bool(pending) or any(self._commit_changed(one) for one in live)
            if changed or self._follow_first(ended=False):
                return True
            # After a commit or an error the usual time passes, so that quick saves are not all uploaded.
            self._pause = self._local.pause_after(self._clock.monotonic() - began)
            return False

    @property
    def pause(self) -> Optional[float]:
        """Return the seconds until the next `commit`, None for the usual time."""
        return self._agreement.pause if self._settings.workers > 1 else self._pause

    def _commit_all(self, checkpoints: List[LocalCheckpoint]) -> None:
        """Commit *checkpoints*, newest first; one that is torn keeps no older one back. Raise DamagedError."""
        torn: List[DamagedError] = []
        for number, checkpoint in enumerate(checkpoints):
            try:
                self._commit_checkpoint(checkpoint, checkpoint.step, newest=number == len(torn))
            except DamagedError as error:
                torn.append(error)
        if torn:
            raise torn[0]

    def follow_first(self) -> bool:
        """Commit an empty part if this worker's job has ended without saving, for steps that worker 0 committed."""
        with self._lock:
            apart = not self._attempt or self._in_bucket or self._local.format.at_end
            return not apart and self._follow_first(ended=True)

    def saved_nothing(self) -> bool:
        """
        Return whether this worker's job has saved nothing of its own below the checkpoint folder.

        Its random state does not count, since a program can resume from worker 0's files without it.
        """
        if self._in_bucket:
            return False
        now = files_below(self._local.folder)
        return all(one in self._before or self._local.format.follows(one.name) for one in now)

    def commit_outputs(self) -> None:
        """
        Commit the whole folder as one save, after the job exited with status 0.

        Its step is the incarnation: the same for all workers, and greater than any before.
        """
        with self._lock:
            if not self._attempt:
                return
            if self._in_bucket:
                newest = self._checkpoints.newest()
                if newest is not None:
                    self._committed(newest.step)
                return
            names = outputs_in(self._local.folder)
            if names:
                number = self._settings.incarnation
                save = LocalSave(number, "outputs", ".", names)
                self._commit_checkpoint(LocalCheckpoint(number, save, SaveState.COMPLETE, ""), number)

    def _pending(self, whole: List[LocalCheckpoint]) -> List[LocalCheckpoint]:
        """
        Return what to commit, newest first: a machine by itself its newest save, a gang the one it agreed on.

        When its job has ended, a worker of a gang commits its last two: another's last save may be one earlier.
        """
        floor = self._floor_of_saves()
        late = [one for one in whole if one.step > floor]
        if any(one.save.leans for one in late) and self._leaning_waits():
            late = [one for one in late if not one.save.leans]
        # If several saves have the same step, the preferred one comes last and wins.
        by_step = {one.step: one for one in late}
        saves = sorted(by_step.values(), key=lambda one: one.step)
        if self._settings.workers == 1:
            return saves[-1:]
        return saves[: -1 - APART : -1] if self._local.at_rest else self._agreed(floor, saves)

    def _agreed(self, floor: int, saves: List[LocalCheckpoint]) -> List[LocalCheckpoint]:
        """Return this worker's first save from the step on that worker 0 has named, if it has that save."""
        named = self._agreement.step(floor, [one.step for one in saves], self._fence)
        # An agent of an earlier version names nothing.
        return saves[::-1] if named is None else [one for one in saves if floor < named <= one.step][:1]

    def _floor_of_saves(self) -> int:
        return -1 if self._floor is None or self._newest.gives_way(self._floor) else self._floor

    def _follow_first(self, *, ended: bool) -> bool:
        """
        Write a manifest without files for each step that only worker 0 saves, so that it is complete.

        Workers train in step: one that has written nothing by worker 0's second save has no part in the
        first. Return whether a manifest was written.
        """
        one = self._settings
        if one.worker == 0 or not self.saved_nothing():
            return False
        firsts = []
        for step, _folder in self._checkpoints.folders():
            if step > self._start:
                with contextlib.suppress(DamagedError):
                    first = self._checkpoints.manifest(step, one.incarnation, 0)
                    firsts += [first] if first.attempt == self._attempt and first.files else []
        new = [first for first in firsts if first.step not in self._followed]
        if not new or (len(firsts) < WITHOUT_US and not self._followed and not ended):
            return False
        self._fence()
        for first in sorted(new, key=lambda held: held.step):
            self._write(replace(first, worker=one.worker, files=(), at=self._clock.now()))
            self._followed.add(first.step)
            later = self._floor is None or first.step > self._floor
            self._committed(first.step, proven=first.proven, newest=later)
        return True

    def _leaning_waits(self) -> bool:
        """
        Return whether numbered files must wait for files that are replaced in place.

        A program that resumes from `last.ckpt` would restart at step 0 with `step=40.ckpt` alone. A gang does
        not wait, since files that are replaced rarely have the same step on all of its machines.
        """
        if self._settings.workers > 1:
            return False
        if not self._local.at_rest:
            return not self._local.headless
        last = self._newest.manifest()
        return last is not None and replaced_in_place(one.name for one in last.files)

    def _commit_changed(self, one: LocalCheckpoint) -> bool:
        """
        Commit changed files that were replaced in place and have no later step than the newest commit.

        A save with an earlier step is not committed: the job has started over.
        """
        states, chosen = self._local.files_of(one.save), self._local.format.chosen
        news, last = last_manifest.relevant(states, chosen), self._newest.manifest()
        if news == self._same.relevant or (last is not None and last_manifest.is_earlier(one, last)):
            return False
        if last is not None and last_manifest.is_same(self._local.folder / one.save.folder, news, last):
            self._same = last_manifest.CommittedFiles.of(states, chosen)
            return False
        then = self._same.then(states, chosen)
        return then.besides <= BESIDES and self._commit_checkpoint(one, self._number(one))

    def _note(self) -> bool:
        newest = self._checkpoints.newest()
        if newest is None or (self._floor is not None and newest.step <= self._floor):
            return False
        self._heartbeat.set(format=self._local.format.chosen)
        self._committed(newest.step)
        return True

    def _commit_checkpoint(self, checkpoint: LocalCheckpoint, number: int, *, newest: bool = True) -> bool:
        """Upload a checkpoint and write its manifest, unless that exists; return True."""
        began, save = self._clock.monotonic(), checkpoint.save
        states = self._local.files_of(save) if save.live else ()
        folder, held = self._hold(checkpoint)
        try:
            if held.step != checkpoint.step:
                # The next call sees the save that the job has made meanwhile.
                if self._settings.workers > 1:
                    raise DamagedError(f"{save.name} was replaced before its copy and is not committed")
                checkpoint, number = held, self._number(held)
            if not self._held_already(number):
                # After a kill everything is sent again: objects without a manifest prove nothing.
                files = self._upload(checkpoint, number, folder)
                self._manifest(checkpoint, number, tuple(files), newest=newest)
                self._heartbeat.set(commit_seconds=round(self._clock.monotonic() - began, 3))
        finally:
            if folder is not None:
                shutil.rmtree(str(folder), ignore_errors=True)
        self._agreement.committed(number, self._clock.monotonic() - began)
        self._committed(number, proven=checkpoint.own_step == number, newest=newest)
        self._same = self._same.then(states, self._local.format.chosen)
        return True

    def _hold(self, one: LocalCheckpoint) -> Tuple[Optional[Path], LocalCheckpoint]:
        """Return a folder in which the save stays as it is, though the job replaces its own, and that save."""
        if self._local.format.at_end:
            return None, one
        try:
            return self._local.copy(one) if one.save.live else (self._local.link(one), one)
        except OSError as error:
            # A full disk may still hold the save itself, and the upload detects changes.
            say(f"{one.save.name} is uploaded from its place: {error}")
            return None, one

    def _number(self, checkpoint: LocalCheckpoint) -> int:
        """Return the step to commit under: the save's own, else the reported one, else a count of saves."""
        floor = self._floor_of_saves()
        if checkpoint.own_step is not None and checkpoint.own_step > floor:
            return checkpoint.own_step
        reported = self._heartbeat.get("step")
        return max(floor + 1, reported if isinstance(reported, int) else 0)

    def _manifest(
        self, checkpoint: LocalCheckpoint, number: int, files: Tuple[StoredFile, ...], *, newest: bool
    ) -> None:
        settings, chosen = self._settings, self._local.format.chosen
        self._fence()
        if self._newest.gives_way(self._floor):
            self._newest.make_way(number)
        # Written last: this write makes the checkpoint exist; a kill before it leaves only loose files.
        manifest = Manifest(
            number, settings.incarnation, settings.worker, settings.workers,
            self._attempt, checkpoint.save.folder, files, self._clock.now(), chosen, checkpoint.own_step,
            links_of(self._local.folder, checkpoint.save),
        )  # fmt: skip
        self._write(manifest)
        if newest:
            self._newest.begin(manifest)
        say(f"committed step {number}: {len(files)} files, {sum(one.size for one in files)} bytes")

    def _held_already(self, step: int) -> bool:
        """
        Return whether this worker's part is already committed.

        A part of an overtaken attempt whose checkpoint never became complete is deleted to make room for
        ours.
        """
        name = manifest_name(step, self._settings.incarnation, self._settings.worker)
        held = self._bucket.read(name)
        if held is None:
            return False
        try:
            manifest = parse(held.data, name)
            if manifest.format == last_manifest.FILES and self._newest.gives_way(self._floor):
                return False
            if manifest.attempt == self._attempt:
                return True
        except DamagedError as error:
            say(str(error))
        # Another worker may be resuming from a complete checkpoint now, so only an incomplete one may be deleted.
        if self._checkpoints.completed(step, self._settings.incarnation) is not None:
            return True
        self._fence()
        # Only this generation: the next agent of this worker may have written a new manifest.
        self._bucket.delete(name, held.generation)
        return False

    def _upload(self, one: LocalCheckpoint, number: int, held: Optional[Path]) -> List[StoredFile]:
        """
        Upload the payload first and the file that completes the save for its framework last.

        A copy of the bucket's folder thus never looks complete too early. Raise DamagedError if a file changed.
        """
        local = self._local
        folder = (held or local.folder) / one.save.folder
        before = local.files_of(one.save) if not held else files_below(folder)

        def send(file: FileState) -> StoredFile:
            target = file_name(number, self._settings.incarnation, self._settings.worker, file.name)
            digest = self._bucket.upload(target, folder / file.name, file.size)
            return StoredFile(file.name, file.size, digest, file.modified)

        payload = [file for file in before if not local.format.closes(file.name)]
        with ThreadPoolExecutor(PARALLEL) as pool:
            # `list` waits for all uploads and raises the first failure before the completing file is sent.
            sent = list(pool.map(send, payload))
        sent += [send(file) for file in before if local.format.closes(file.name)]
        # A link shares its bytes with the job's file, so both kinds are compared.
        whole = files_below(folder) == before if held else local.files_of(one.save) == before
        if not whole or not (held or local.format.at_end or one in local.checkpoints()):
            raise DamagedError(f"{one.save.name} changed while it was uploaded, so it is not committed")
        return sorted(sent, key=lambda file: file.name)

    def _fence(self) -> None:
        newer = self._attempts.newer_incarnation()
        if newer is not None:
            raise FencedError(f"TPU #{newer} exists, this one writes no more")
        if self._attempts.overtaken(self._attempt):
            raise FencedError(f"attempt {self._attempt + 1} exists, attempt {self._attempt} writes no more")

    def _write(self, manifest: Manifest) -> None:
        name = manifest_name(manifest.step, manifest.incarnation, manifest.worker)
        try:
            self._bucket.write(name, manifest.text().encode(), 0)
        except PreconditionError:
            # A repeated write may find the result of its own first try.
            held = self._bucket.read(name)
            if held is None or held.data != manifest.text().encode():
                raise

    def _committed(self, step: int, *, proven: bool = True, newest: bool = True) -> None:
        earlier = [one for one in self._heartbeat.get("committed_steps") if one != step]
        listed = sorted([step, *earlier], reverse=True) if not newest else [step, *earlier]
        self._heartbeat.note_commit(step, listed[:RECENT])
        if newest:
            self._floor = step
            self.proven = step if proven else self.proven
            self._heartbeat.set(committed_step=step, committed_counted=not proven)
