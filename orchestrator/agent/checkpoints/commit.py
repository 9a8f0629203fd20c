"""Commit finished checkpoints: upload, verify that nothing changed meanwhile, write the manifest last."""

from __future__ import annotations

import contextlib
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import List, Optional, Set, Tuple

from orchestrator.agent.checkpoints.catalogue import Catalogue
from orchestrator.agent.checkpoints.links import links_of
from orchestrator.agent.checkpoints.local import (
    FileState,
    LocalCheckpoints,
    LocalStep,
    files_below,
)
from orchestrator.agent.checkpoints.newest import FILES, CommittedFiles, Newest, is_earlier, is_same, relevant
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.gang import Gang
from orchestrator.agent.heartbeat import Status
from orchestrator.agent.settings import Settings
from orchestrator.agent.threads import say
from orchestrator.contract.formats.base import SavedState, Unit
from orchestrator.contract.formats.outputs import outputs_in
from orchestrator.contract.formats.saved_files import replaced_in_place
from orchestrator.contract.machine_errors import FencedError, PreconditionError, TornError
from orchestrator.contract.manifest import Manifest, StoredFile, file_name, manifest_name, parse

PARALLEL = 4
BESIDES = 2
"""How often a change of what only lies beside the saves (`latest`, `results.json`) is committed by itself."""
WITHOUT_US = 2
"""Saves of worker 0 after which a worker that has written nothing has no part in them."""


class Committer:
    """Commit complete local checkpoints to the bucket, or record those that the job writes there itself."""

    def __init__(
        self,
        settings: Settings,
        bucket: JobBucket,
        *,
        catalogue: Catalogue,
        gang: Gang,
        local: LocalCheckpoints,
        status: Status,
    ) -> None:
        self._settings = settings
        self._bucket = bucket
        self._catalogue = catalogue
        self._gang = gang
        self._local = local
        self._status = status
        self._lock = threading.Lock()
        self._attempt = 0
        self._floor: Optional[int] = None
        self._newest = Newest(settings.worker, catalogue, local)
        self._same = CommittedFiles()
        self._before: Tuple[FileState, ...] = ()
        self._start = -1
        self._followed: Set[int] = set()
        self.proven: Optional[int] = None

    def begin(
        self, attempt: int, floor: Optional[int], *, proven: bool = True, starting: bool = False
    ) -> None:
        """
        Commit for *attempt* from now on, and only steps after *floor*; *proven*: a save names that step itself.

        *starting*: the job is about to start, so that what lies in the folder now is not of its making.
        """
        with self._lock:
            self._attempt, self._floor = attempt, floor
            self._same = CommittedFiles()
            # Files of an earlier start or of the bundle are no proof that this worker saves anything.
            self._before = files_below(self._local.folder) if starting and not self._in_bucket() else ()
            self._start, self._followed = -1 if floor is None else floor, set()
            self._newest.begin()
            self.proven = floor if proven else None

    def end(self) -> None:
        """Commit nothing until the next `begin`; returns when a running commit has ended."""
        # Takes the lock, so it returns when no thread is in a commit: the restore that follows may move
        # files.
        self.begin(0, None)

    def commit(self) -> bool:
        """
        Commit what is finished and new; return whether anything was.

        Raises FencedError, AgentError or OSError; what is not committed is tried again by the next call.
        """
        with self._lock:
            if not self._attempt:
                return False
            if self._local.format.at_end:
                return False
            if self._in_bucket():
                return self._note()
            whole = [one for one in self._local.steps() if one.complete]
            self._status.set(format=self._local.format.chosen)
            steps = self._pending(whole)
            for step in steps:
                self._commit_step(step)
            changed = bool(steps) or any(self._commit_changed(one) for one in whole if one.unit.live)
            return changed or self._follow_first(ended=False)

    def follow_first(self) -> bool:
        """Commit the empty part of a worker whose job has ended and has saved nothing, where worker 0 has."""
        with self._lock:
            apart = not self._attempt or self._in_bucket() or self._local.format.at_end
            return not apart and self._follow_first(ended=True)

    def saved_nothing(self) -> bool:
        """
        Say whether this worker's job has written nothing that counts below the folder of all checkpoints.

        Its own random numbers do not: a program goes on from worker 0's files without them.
        """
        if self._in_bucket():
            return False
        now = files_below(self._local.folder)
        return all(one in self._before or self._local.format.follows(one.name) for one in now)

    def commit_outputs(self) -> None:
        """
        Commit all that lies in the folder as one unit, once the job has ended with status 0.

        Its step is the incarnation, which is the same for all workers and larger than any before.
        """
        with self._lock:
            if not self._attempt:
                return
            if self._in_bucket():
                newest = self._catalogue.newest()
                if newest is not None:
                    self._committed(newest.step)
                return
            names = outputs_in(self._local.folder)
            if names:
                number = self._settings.incarnation
                unit = Unit(number, "outputs", ".", names)
                self._commit_step(LocalStep(number, unit, SavedState.COMPLETE, ""))

    def _pending(self, whole: List[LocalStep]) -> List[LocalStep]:
        """Return what to commit: one machine commits the newest step, a gang every step so that workers meet."""
        floor = -1 if self._floor is None or self._newest.gives_way(self._floor) else self._floor
        late = [one for one in whole if one.step > floor]
        if any(one.unit.leans for one in late) and self._leaning_waits():
            late = [one for one in late if not one.unit.leans]
        # Of several names for one step the preferred one comes last.
        by_step = {one.step: one for one in late}
        steps = list(by_step.values())
        return steps if self._settings.workers > 1 else steps[-1:]

    def _in_bucket(self) -> bool:
        return self._settings.checkpoints.in_bucket

    def _follow_first(self, *, ended: bool) -> bool:
        """
        Say with a manifest without files that only worker 0 saves, so that its saves are whole checkpoints.

        Workers train in step: one that has written nothing when worker 0 has finished a second save has had
        no part in the first. Return whether a manifest was written.
        """
        one = self._settings
        if one.worker == 0 or not self.saved_nothing():
            return False
        firsts = []
        for step, _folder in self._catalogue.steps():
            if step > self._start:
                with contextlib.suppress(TornError):
                    first = self._catalogue.manifest(step, one.incarnation, 0)
                    firsts += [first] if first.attempt == self._attempt and first.files else []
        new = [first for first in firsts if first.step not in self._followed]
        if not new or (len(firsts) < WITHOUT_US and not self._followed and not ended):
            return False
        self._fence()
        for first in sorted(new, key=lambda held: held.step):
            self._write(replace(first, worker=one.worker, files=(), at=time.time()))
            self._followed.add(first.step)
            self._committed(first.step, proven=first.proven)
        return True

    def _leaning_waits(self) -> bool:
        """
        Say whether numbered files have to wait for those that are replaced in place.

        A program that goes on from `last.ckpt` would begin at step 0 with `step=40.ckpt` alone. Machines of
        a gang would hardly meet at one step of files that are replaced, so theirs do not wait.
        """
        if self._settings.workers > 1:
            return False
        if not self._local.at_rest:
            return not self._local.headless
        last = self._newest.manifest()
        return last is not None and replaced_in_place(one.name for one in last.files)

    def _commit_changed(self, step: LocalStep) -> bool:
        """
        Commit files that were replaced in place and tell no later step than the newest commit.

        A save that tells an earlier step than that is no news: the job has begun again.
        """
        states, chosen = self._local.files_of(step.unit), self._local.format.chosen
        news, last = relevant(states, chosen), self._newest.manifest()
        if news == self._same.relevant or (last is not None and is_earlier(step, last)):
            return False
        if last is not None and is_same(self._local.folder / step.unit.folder, news, last):
            self._same = CommittedFiles.of(states, chosen)
            return False
        then = self._same.then(states, chosen)
        return then.besides <= BESIDES and self._commit_step(step)

    def _note(self) -> bool:
        newest = self._catalogue.newest()
        if newest is None or (self._floor is not None and newest.step <= self._floor):
            return False
        self._status.set(format=self._local.format.chosen)
        self._committed(newest.step)
        return True

    def _commit_step(self, step: LocalStep) -> bool:
        """Upload a step and write its manifest, if that is not there yet; return True."""
        own_step, number, began = step.own_step, self._number(step), time.monotonic()
        states = self._local.files_of(step.unit) if step.unit.live else ()
        folder = self._copy(step) if step.unit.live else None
        source = folder or self._local.folder
        try:
            if not self._held_already(number):
                # A commit that was killed sends everything again: objects without a manifest prove nothing.
                files = self._upload(step, number, source, copied=folder is not None)
                self._manifest(step, number, files, own_step)
                self._status.set(commit_seconds=round(time.monotonic() - began, 3))
        finally:
            if folder is not None:
                shutil.rmtree(str(folder), ignore_errors=True)
        self._committed(number, proven=own_step == number)
        self._same = self._same.then(states, self._local.format.chosen)
        return True

    def _copy(self, step: LocalStep) -> Optional[Path]:
        try:
            return self._local.copy(step)
        except OSError as error:
            # A disk that is full may still have the save itself, and the upload notices a change.
            say(f"{step.unit.name} is uploaded without a copy: {error}")
            return None

    def _number(self, step: LocalStep) -> int:
        """Return the step to commit under: what the save tells, else what the job reports, else a count."""
        floor = -1 if self._floor is None or self._newest.gives_way(self._floor) else self._floor
        if step.own_step is not None and step.own_step > floor:
            return step.own_step
        reported = self._status.get("step")
        return max(floor + 1, reported if isinstance(reported, int) else 0)

    def _manifest(
        self, step: LocalStep, number: int, files: Tuple[StoredFile, ...], own_step: Optional[int]
    ) -> None:
        settings, chosen = self._settings, self._local.format.chosen
        self._fence()
        if self._newest.gives_way(self._floor):
            self._newest.make_way(number)
        # Last of all: from this write on the checkpoint exists, and killed before it nothing but files lie
        # there.
        manifest = Manifest(
            number, settings.incarnation, settings.worker, settings.workers,
            self._attempt, step.unit.folder, files, time.time(), chosen, own_step,
            links_of(self._local.folder, step.unit),
        )  # fmt: skip
        self._write(manifest)
        self._newest.begin(manifest)
        say(f"committed step {number}: {len(files)} files, {sum(one.size for one in files)} bytes")

    def _held_already(self, step: int) -> bool:
        """
        Say whether this worker's part is committed.

        A part of an overtaken attempt that never got whole is removed, to make place for ours.
        """
        name = manifest_name(step, self._settings.incarnation, self._settings.worker)
        held = self._bucket.read(name)
        if held is None:
            return False
        try:
            manifest = parse(held.data, name)
            if manifest.format == FILES and self._newest.gives_way(self._floor):
                return False
            if manifest.attempt == self._attempt:
                return True
        except TornError as error:
            say(str(error))
        # What is whole may be what another worker resumes from at this moment, so only a part may go.
        if self._catalogue.completed(step, self._settings.incarnation) is not None:
            return True
        self._fence()
        # Of this generation only: the same worker's next agent may have written a new one.
        self._bucket.delete(name, held.generation)
        return False

    def _upload(self, step: LocalStep, number: int, source: Path, *, copied: bool) -> Tuple[StoredFile, ...]:
        """
        Upload the payload first, and last the file that makes the step complete for its framework.

        So a copy of the bucket's folder never looks whole too early.
        """
        local = self._local
        folder = source / step.unit.folder
        before = local.files_of(step.unit) if not copied else files_below(folder)

        def send(one: FileState) -> StoredFile:
            target = file_name(number, self._settings.incarnation, self._settings.worker, one.name)
            digest = self._bucket.upload(target, folder / one.name, one.size)
            return StoredFile(one.name, one.size, digest, one.modified)

        payload = [one for one in before if not local.format.closes(one.name)]
        with ThreadPoolExecutor(PARALLEL) as pool:
            # `list` waits for all and raises the first failure, before anything that closes the step is sent.
            sent = list(pool.map(send, payload))
        sent += [send(one) for one in before if local.format.closes(one.name)]
        whole = local.format.at_end or copied or step in local.steps()
        if not whole or (not copied and local.files_of(step.unit) != before):
            raise TornError(f"{step.unit.name} changed while it was uploaded, so it is not committed")
        return tuple(sorted(sent, key=lambda one: one.name))

    def _fence(self) -> None:
        newer = self._gang.newer_incarnation()
        if newer is not None:
            raise FencedError(f"incarnation {newer} exists, this one writes no more")
        if self._gang.overtaken(self._attempt):
            raise FencedError(f"attempt {self._attempt + 1} exists, attempt {self._attempt} writes no more")

    def _write(self, manifest: Manifest) -> None:
        name = manifest_name(manifest.step, manifest.incarnation, manifest.worker)
        try:
            self._bucket.write(name, manifest.text().encode(), 0)
        except PreconditionError:
            # A write that was tried again may meet its own first success.
            held = self._bucket.read(name)
            if held is None or held.data != manifest.text().encode():
                raise

    def _committed(self, step: int, *, proven: bool = True) -> None:
        self._floor = step
        self.proven = step if proven else self.proven
        self._status.set(committed_step=step, committed_at=time.time(), committed_counted=not proven)
