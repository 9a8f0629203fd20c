"""
Orbax 0.2 to 0.12: a folder for each step, either renamed when it is whole or written in place.

Which versions write what (read in the wheels 0.2.3, 0.4.8, 0.5.0, 0.6.4, 0.11.0, 0.11.36 and 0.12.8):

- up to 0.5 the folder is always renamed on disk, and holds no `_CHECKPOINT_METADATA`;
- from 0.6 on `_CHECKPOINT_METADATA` is there from the start, with `commit_timestamp_nsecs` null until every
  array is written. `CommitFileTemporaryPath` writes into the final folder and puts `commit_success.txt` last;
- 0.12 puts `commit_success.txt` also into folders that it renames;
- in a bucket all versions write in place and put `commit_success.txt` last.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, List

from ..layout import write_atomically  # noqa: TID252 (the zipapp gives the package another name)
from .base import Format, Judgement, Listing, StoredStep, Unit, complete, entries, torn, unfinished
from .marker import folders_with, step_of
from .whole import json_object, whole_number

COMMIT_SUCCESS = "commit_success.txt"
METADATA = "_CHECKPOINT_METADATA"
STAGING = ".orbax-checkpoint-tmp"
_STEP = re.compile(rf"(?:[A-Za-z][\w.-]*_)?\d+(?:{re.escape(STAGING)}.*)?")
_TREE = ("_METADATA", "checkpoint")
_SIGNS = frozenset({COMMIT_SUCCESS, METADATA, *_TREE})


class Orbax(Format):
    """
    Ask for the commit file or the time of the commit; a folder's name proves nothing since 0.6.
    """

    name = "orbax"
    wants = f"a step folder with {COMMIT_SUCCESS}, or with the time of the commit in {METADATA}"

    def find(self, root: Path) -> List[Unit]:
        """
        Return the step folders, staging ones too; one with a prefix (`ckpt_100`) has to look like Orbax's.
        """
        folders = [path for path in entries(root) if _STEP.fullmatch(path.name) and path.is_dir()]
        named = [path.name for path in folders if path.name[0].isdigit() or _is_orbax(path)]
        return [Unit(step_of(name.split(STAGING)[0]) or 0, name, name) for name in named]

    def judge(self, root: Path, unit: Unit) -> Judgement:
        """
        Look for the commit file, then for the time of the commit, then for the layout before 0.6.
        """
        folder = root / unit.folder
        if STAGING in unit.folder:
            return unfinished("its staging folder was never renamed")
        if (folder / COMMIT_SUCCESS).is_file():
            return complete()
        if not (folder / METADATA).exists():
            return _before_metadata(folder)
        metadata = json_object(folder / METADATA)
        if metadata is None:
            return torn(f"{METADATA} cannot be read")
        if whole_number(metadata.get("commit_timestamp_nsecs")) is None:
            return unfinished(f"no {COMMIT_SUCCESS}, and {METADATA} tells no time of a commit")
        return complete()

    def closes(self, name: str) -> bool:
        """
        Say whether this is the commit file.
        """
        return name == COMMIT_SUCCESS

    def repair(self, root: Path, chosen: Unit) -> List[str]:
        """
        Write the commit file where a kill came between the time of the commit and this file.

        Without it Orbax takes a save that is written in place for a torn one, and deletes it at its start.
        """
        folder = root / chosen.folder
        if (folder / COMMIT_SUCCESS).exists() or not (folder / METADATA).exists():
            return []
        write_atomically(folder / COMMIT_SUCCESS, f"Checkpoint commit was successful to {folder}")
        return [f"{chosen.name} was whole and had no {COMMIT_SUCCESS}, it has one now"]

    def stored(self, listing: Listing) -> Iterator[StoredStep]:
        """
        Yield the steps in the bucket.

        Only the commit file counts there: Orbax itself asks for it, and a rename is a copy of each object,
        so that the time of the commit may arrive before the arrays.
        """
        return folders_with(listing, COMMIT_SUCCESS)


def _is_orbax(folder: Path) -> bool:
    """
    Say whether a folder holds a file of Orbax, or its name that of a staging folder.
    """
    return STAGING in folder.name or any((folder / sign).exists() for sign in _SIGNS)


def _before_metadata(folder: Path) -> Judgement:
    """
    Judge a folder without `_CHECKPOINT_METADATA`: a save of Orbax up to 0.5, or one that has just begun.
    """
    items = [folder, *(path for path in entries(folder) if path.is_dir())]
    if any(STAGING in path.name for path in items):
        return unfinished("an item in it was never renamed")
    trees = [path for path in items if any((path / name).is_file() for name in _TREE)]
    if not trees:
        return unfinished(f"neither {METADATA} nor a saved tree is in it")
    for path in items:
        # Each process writes a part of its own; the manifest that joins them comes last.
        if any(path.glob("ocdbt.process_*")) and not (path / "manifest.ocdbt").exists():
            return unfinished(f"no manifest.ocdbt in {path.name}")
    return complete()
