"""
Checkpoint folders on the machine's disk: which ones the job has finished.
"""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import List, Tuple

from .checkpoints import step_of
from .settings import CheckpointSettings
from .threads import say

RESTORING = ".restore-"
QUARANTINED = 5


@dataclass(frozen=True)
class LocalStep:
    """
    Name a step folder of the job.
    """

    step: int
    path: Path
    complete: bool


@dataclass(frozen=True)
class FileState:
    """
    Hold what tells whether a file changed: its name in the folder, size, time and inode.
    """

    name: str
    size: int
    modified: int
    inode: int


class LocalCheckpoints:
    """
    Look at the folder the job saves to, and move doubtful step folders to *quarantine*.
    """

    def __init__(self, settings: CheckpointSettings, quarantine: Path) -> None:
        self.folder = Path(settings.folder)
        self._settings = settings
        self._quarantine = quarantine

    def steps(self) -> List[LocalStep]:
        """
        Return the step folders in ascending order; hidden ones are the agent's or the framework's own.
        """
        try:
            entries = sorted(self.folder.iterdir())
        except FileNotFoundError:
            return []
        found = []
        for path in entries:
            step = step_of(path.name)
            if step is not None and path.is_dir() and not path.name.startswith("."):
                found.append(LocalStep(step, path, self._is_complete(path)))
        return sorted(found, key=lambda one: one.step)

    def put_aside(self, path: Path) -> Path:
        """
        Move a folder to the quarantine under a name of its own, and return where it is.
        """
        self._quarantine.mkdir(parents=True, exist_ok=True)
        target = self._quarantine / f"{path.name.lstrip('.')}-{time.time_ns()}"
        try:
            path.rename(target)
        except OSError:
            # The user's checkpoint folder may lie on another disk, where rename cannot reach.
            target = self.folder / f".quarantine-{target.name}"
            path.rename(target)
        self._thin()
        return target

    def _thin(self) -> None:
        """
        Keep the newest folders in quarantine only, so that a crash loop cannot fill the disk.
        """
        held = sorted(self._quarantine.iterdir(), key=lambda one: one.name.rsplit("-", 1)[-1])
        for old in held[:-QUARANTINED]:
            say(f"{old} is removed: {QUARANTINED} newer folders are in quarantine")
            shutil.rmtree(str(old), ignore_errors=True)

    def _is_complete(self, path: Path) -> bool:
        """
        Orbax commits a local folder by renaming it to digits only; other jobs write their marker last.
        """
        if self._settings.format == "orbax":
            return path.name.isdigit()
        return (path / self._settings.marker).is_file()


def files_of(folder: Path) -> Tuple[FileState, ...]:
    """
    Return the state of every file under *folder*, sorted by name. Raises OSError when one vanishes.
    """
    found = []
    for base, _folders, names in os.walk(str(folder)):
        for name in names:
            path = Path(base) / name
            state = path.stat()
            relative = path.relative_to(folder).as_posix()
            found.append(FileState(relative, state.st_size, state.st_mtime_ns, state.st_ino))
    return tuple(sorted(found, key=lambda one: one.name))
