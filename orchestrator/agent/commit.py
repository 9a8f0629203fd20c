"""
Commit finished checkpoints: upload, verify that nothing changed meanwhile, write the manifest last.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import List, Optional, Tuple

from .catalogue import Catalogue
from .errors import FencedError, PreconditionError, TornError
from .formats.base import State, Unit
from .formats.outputs import outputs_in
from .gang import Gang
from .heartbeat import Status
from .local_checkpoints import FileState, LocalCheckpoints, LocalStep
from .manifest import Manifest, StoredFile, file_name, manifest_name, parse
from .settings import Settings
from .storage import Bucket
from .threads import say

PARALLEL = 4


class Committer:
    """
    Make finished local checkpoints exist in the bucket, or note those that the job writes there itself.
    """

    def __init__(
        self,
        settings: Settings,
        bucket: Bucket,
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

    def begin(self, attempt: int, floor: Optional[int]) -> None:
        """
        Commit for *attempt* from now on, and only steps after *floor*.
        """
        with self._lock:
            self._attempt, self._floor = attempt, floor

    def end(self) -> None:
        """
        Commit nothing until the next `begin`; returns when a running commit has ended.
        """
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
            if self._settings.checkpoints.in_bucket:
                return self._note()
            steps = self._pending()
            for step in steps:
                self._commit_step(step)
            return bool(steps)

    def commit_outputs(self) -> None:
        """
        Commit all that lies in the folder as one unit, once the job has ended with status 0.

        Its step is the incarnation, which is the same for all workers and larger than any before.
        """
        with self._lock:
            if not self._attempt:
                return
            if self._settings.checkpoints.in_bucket:
                newest = self._catalogue.newest()
                if newest is not None:
                    self._committed(newest.step)
                return
            names = outputs_in(self._local.folder)
            if names:
                number = self._settings.incarnation
                unit = Unit(number, "outputs", ".", names)
                self._commit_step(LocalStep(number, unit, State.COMPLETE, ""))

    def _pending(self) -> List[LocalStep]:
        """
        Return what to commit: one machine commits the newest step, a gang every step so that workers meet.
        """
        floor = -1 if self._floor is None else self._floor
        # Of several names for one step the preferred one comes last.
        by_step = {one.step: one for one in self._local.steps() if one.complete and one.step > floor}
        steps = list(by_step.values())
        return steps if self._settings.workers > 1 else steps[-1:]

    def _note(self) -> bool:
        newest = self._catalogue.newest()
        if newest is None or (self._floor is not None and newest.step <= self._floor):
            return False
        self._committed(newest.step)
        return True

    def _commit_step(self, step: LocalStep) -> None:
        settings = self._settings
        if not self._held_already(step.step):
            files = self._upload(step)
            self._fence()
            manifest = Manifest(
                step.step, settings.incarnation, settings.worker, settings.workers,
                self._attempt, step.unit.folder, files, time.time(),
            )  # fmt: skip
            self._write(manifest)
            say(f"committed step {step.step}: {len(files)} files, {sum(one.size for one in files)} bytes")
        self._committed(step.step)

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
            if parse(held.data, name).attempt == self._attempt:
                return True
        except TornError as error:
            say(str(error))
        if self._catalogue.completed(step, self._settings.incarnation) is not None:
            return True
        self._fence()
        self._bucket.delete(name, held.generation)
        return False

    def _upload(self, step: LocalStep) -> Tuple[StoredFile, ...]:
        """
        Upload the payload first, and last the file that makes the step complete for its framework.

        So a copy of the bucket's folder never looks whole too early.
        """
        local = self._local
        folder, before = local.folder / step.unit.folder, local.files_of(step.unit)

        def send(one: FileState) -> StoredFile:
            target = file_name(step.step, self._settings.incarnation, self._settings.worker, one.name)
            return StoredFile(one.name, one.size, self._bucket.upload(target, folder / one.name, one.size))

        payload = [one for one in before if not local.format.closes(one.name)]
        with ThreadPoolExecutor(PARALLEL) as pool:
            sent = list(pool.map(send, payload))
        sent += [send(one) for one in before if local.format.closes(one.name)]
        if local.files_of(step.unit) != before or not self._still_complete(step):
            raise TornError(f"{step.unit.name} changed while it was uploaded, so it is not committed")
        return tuple(sorted(sent, key=lambda one: one.name))

    def _still_complete(self, step: LocalStep) -> bool:
        return self._local.format.at_end or any(one == step for one in self._local.steps())

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

    def _committed(self, step: int) -> None:
        self._floor = step
        self._status.set(committed_step=step, committed_at=time.time())
