"""Word that a job did not begin at the checkpoint that was restored for it, and what became of those files."""

from __future__ import annotations

from pathlib import Path
from typing import Dict, Iterable, Optional, Tuple

PLAIN = ("files", "marker", "outputs")
"""Formats of scripts without a framework, which could refuse a checkpoint and remove it."""


class RestoredFiles:
    """The files of the checkpoint that was restored last, as they were when the job could begin to read them."""

    def __init__(self) -> None:
        self._files: Dict[Path, Optional[Tuple[int, int, int]]] = {}
        self.framework = ""

    def remember(self, folder: Path, names: Iterable[str], framework: str = "") -> None:
        """Keep what shows a later change of these files of a format; without names, nothing was restored."""
        self.framework = framework
        self._files = {folder / name: _state(folder / name) for name in names}

    @property
    def removed(self) -> bool:
        """Return whether one of the files is not there any more."""
        return any(was is not None and _state(path) is None for path, was in self._files.items())

    @property
    def rewritten(self) -> bool:
        """Return whether one of the files was written again."""
        return any(was is not None and _state(path) != was for path, was in self._files.items())


def ignored_message(step: int, resumed: int, files: RestoredFiles) -> str:
    """Return that a job whose first reported step is *step* ignores the restored one."""
    why = "it did not load that checkpoint, or counts its steps anew"
    if files.removed and files.framework not in PLAIN:
        # Orbax, for one, deletes what it takes for torn.
        why = "that checkpoint is not there any more, though its bytes were as saved: the framework has refused "
        why += "it, or the job has deleted it"
    elif files.removed:
        why += ", and has deleted it"
    elif files.rewritten:
        why += ", and has written over it"
    return (
        f"step {resumed} is restored, but the first step that the job reports is {step}: {why}. "
        "So every preemption costs all steps"
    )


def _state(path: Path) -> Optional[Tuple[int, int, int]]:
    """Return size, time and inode of a file, None if it is not there."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino
