"""
Orbax 0.12: a folder for each step, renamed to digits when it is whole.

In a bucket, where nothing can be renamed, `commit_success.txt` comes last.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, List

from .base import Format, Judgement, Listing, StoredStep, Unit, complete, entries, unfinished
from .marker import folders_with, step_of

COMMIT_SUCCESS = "commit_success.txt"
_STAGING = ".orbax-checkpoint-tmp"
_STEP = re.compile(rf"\d+(?:{re.escape(_STAGING)}.*)?")


class Orbax(Format):
    """
    Trust the rename on disk and the commit object in the bucket.

    Locally Orbax itself does not require the commit file, so neither do we.
    """

    name = "orbax"
    wants = "a folder whose name is the step, as Orbax leaves it when a save is whole"

    def find(self, root: Path) -> List[Unit]:
        """
        Return the step folders, staging ones too.
        """
        folders = [path.name for path in entries(root) if _STEP.fullmatch(path.name) and path.is_dir()]
        return [Unit(step_of(name.split(".")[0]) or 0, name, name) for name in folders]

    def judge(self, root: Path, unit: Unit) -> Judgement:
        """
        Look at the name: only a finished save has digits alone.
        """
        return complete() if unit.folder.isdigit() else unfinished("its staging folder was never renamed")

    def closes(self, name: str) -> bool:
        """
        Say whether this is the commit file.
        """
        return name == COMMIT_SUCCESS

    def stored(self, listing: Listing) -> Iterator[StoredStep]:
        """
        Yield the steps in the bucket.
        """
        return folders_with(listing, COMMIT_SUCCESS)
