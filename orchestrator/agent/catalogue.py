"""
Look up complete checkpoints in the bucket, newest first.
"""

from __future__ import annotations

from typing import Dict, Iterator, List, Optional, Tuple

from .checkpoints import Checkpoint, completed_by, step_of
from .errors import AgentError, TornError
from .manifest import CHECKPOINTS, Manifest, manifest_name, parse, parse_name
from .settings import Settings
from .storage import SECONDS, Bucket

COMMIT_SUCCESS = "commit_success.txt"


class Catalogue:
    """
    Know the complete checkpoints: those that agents committed, or those the framework finished itself.
    """

    def __init__(self, settings: Settings, bucket: Bucket) -> None:
        self._settings = settings.checkpoints
        self._bucket = bucket

    def newest(self, seconds: float = SECONDS) -> Optional[Checkpoint]:
        """
        Return the newest complete checkpoint, None when the bucket surely has none.
        """
        return next(self.complete(seconds), None)

    def complete(self, seconds: float = SECONDS) -> Iterator[Checkpoint]:
        """
        Yield complete checkpoints, newest step first, then newest incarnation.
        """
        return self._finished(seconds) if self._settings.in_bucket else self._committed(seconds)

    def manifest(self, step: int, incarnation: int, worker: int) -> Manifest:
        """
        Return one worker's manifest. Raises TornError when it is gone or is none.
        """
        name = manifest_name(step, incarnation, worker)
        held = self._bucket.read(name)
        if held is None:
            raise TornError(f"{name} is not there")
        return parse(held.data, name)

    def steps(self, seconds: float = SECONDS) -> List[Tuple[int, str]]:
        """
        Return every step that has objects, complete or not, with its prefix; newest first.
        """
        _names, folders = self._bucket.level(self._prefix(), seconds)
        named = [(step_of(folder.rstrip("/").rsplit("/", 1)[-1]), folder) for folder in folders]
        return sorted(((step, folder) for step, folder in named if step is not None), reverse=True)

    def completed(self, step: int, incarnation: int, seconds: float = SECONDS) -> Optional[Checkpoint]:
        """
        Return the checkpoint of one step and incarnation if it is complete.
        """
        return self._judge(f"{CHECKPOINTS}{step:08d}/g{incarnation}/", seconds)

    def _committed(self, seconds: float) -> Iterator[Checkpoint]:
        for _step, folder in self.steps(seconds):
            by_incarnation: Dict[int, str] = {}
            for inner in self._bucket.level(folder, seconds)[1]:
                number = step_of(inner.rstrip("/").rsplit("/", 1)[-1])
                if number is not None:
                    by_incarnation[number] = inner
            for number in sorted(by_incarnation, reverse=True):
                found = self._judge(by_incarnation[number], seconds)
                if found is not None:
                    yield found

    def _judge(self, folder: str, seconds: float) -> Optional[Checkpoint]:
        manifests = []
        for name in self._bucket.level(folder, seconds)[0]:
            key = parse_name(name)
            held = self._bucket.read(name, seconds) if key else None
            if key is None or held is None:
                continue
            try:
                manifest = parse(held.data, name)
            except TornError:
                continue
            if (manifest.step, manifest.incarnation, manifest.worker) == key:
                manifests.append(manifest)
        return completed_by(manifests)

    def _finished(self, seconds: float) -> Iterator[Checkpoint]:
        marker = COMMIT_SUCCESS if self._settings.format == "orbax" else self._settings.marker
        for step, folder in self.steps(seconds):
            if self._bucket.stat(folder + marker, seconds) is not None:
                yield Checkpoint(step, why=f"checkpoint complete: {folder}{marker}")

    def _prefix(self) -> str:
        """
        Return where checkpoints lie: under the folder the job writes to, or under `checkpoints/`.
        """
        if not self._settings.in_bucket:
            return CHECKPOINTS
        name, _, path = self._settings.folder[len("gs://") :].partition("/")
        if name != self._bucket.name:
            raise AgentError(f"{self._settings.folder} is not in the deployment's bucket {self._bucket.name}")
        return path.rstrip("/") + "/" if path else ""
