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

from orchestrator.contract.formats.base import (
    QUIET,
    UNKNOWN,
    BucketSave,
    Format,
    Listing,
    LocalSave,
    SaveState,
    SaveVerdict,
    complete,
    entries,
    torn,
    unfinished,
)
from orchestrator.contract.formats.marker import folders_with, step_of
from orchestrator.contract.json_values import json_object, whole_number
from orchestrator.contract.replacing import write_atomically

COMMIT_SUCCESS = "commit_success.txt"
METADATA = "_CHECKPOINT_METADATA"
STAGING = ".orbax-checkpoint-tmp"
_STEP = re.compile(rf"(?:[A-Za-z][\w.-]*_)?\d+(?:{re.escape(STAGING)}.*)?")
_TREE = ("_METADATA", "checkpoint")
_SIGNS = frozenset({COMMIT_SUCCESS, METADATA, *_TREE})


class Orbax(Format):
    """Require the commit file or the time of the commit; since 0.6 a folder's name proves nothing."""

    name = "orbax"
    wants = f"a step folder with {COMMIT_SUCCESS}, or with the time of the commit in {METADATA}"

    def find(self, root: Path) -> List[LocalSave]:
        """Return the step folders and staging folders; one with a prefix (`ckpt_100`) must look like Orbax's."""
        there = [path for path in entries(root) if path.is_dir()]
        folders = [path for path in there if _STEP.fullmatch(path.name)]
        named = [path.name for path in folders if path.name[0].isdigit() or _is_orbax(path)]
        alone = [path for path in there if is_unnumbered(path)]
        if alone and not named:
            # Overwritten by each save (`state`, `params`); beside numbered steps they are copies (`best`).
            files = (one for path in alone for one in path.rglob("*") if one.is_file())
            names = tuple(sorted(one.relative_to(root).as_posix() for one in files))
            return [LocalSave(UNKNOWN, alone[0].name, ".", names, live=True)]
        return [LocalSave(step_of(name.split(STAGING)[0]) or 0, name, name) for name in named]

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        """Look for the commit file, then for the time of the commit, then for the layout before 0.6."""
        folder = root / save.folder
        if save.live:
            names = {name.partition("/")[0] for name in save.files or ()}
            judged = [self.judge(root, LocalSave(UNKNOWN, name, name)) for name in sorted(names)]
            bad = [one for one in judged if one.state is not SaveState.COMPLETE]
            return bad[0] if bad else complete(UNKNOWN, QUIET)
        if STAGING in save.folder:
            return unfinished("its staging folder was never renamed")
        # All versions that write it write it last.
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
        return name == COMMIT_SUCCESS

    def resume(self, root: str, save: LocalSave) -> str:
        return f"{root.rstrip('/')}/{save.name if save.files else save.folder}"

    def repair(self, root: Path, chosen: LocalSave) -> List[str]:
        """
        Write the commit file if a kill came between the time of the commit and this file.

        Without it Orbax takes a save that was written in place for a torn one, and deletes it at its start.
        """
        if chosen.live:
            return []
        folder = root / chosen.folder
        if (folder / COMMIT_SUCCESS).exists() or not (folder / METADATA).exists():
            return []
        write_atomically(folder / COMMIT_SUCCESS, f"Checkpoint commit was successful to {folder}")
        return [f"{chosen.name} was whole and had no {COMMIT_SUCCESS}, it has one now"]

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        """
        Yield the saves in the bucket.

        Only the commit file counts there, as for Orbax itself: a rename copies each object, so the time of
        the commit may arrive before the arrays.
        """
        numbered = list(folders_with(listing, COMMIT_SUCCESS))
        # In this order a bucket with numbered steps costs no further requests.
        if any(one.complete for one in numbered):
            return iter(numbered)
        alone = (one.rstrip("/") for one in listing.folders if not one.rstrip("/")[-1:].isdigit())
        whole = [name for name in alone if listing.has(f"{name}/{COMMIT_SUCCESS}")]
        message = f"{whole[0]}/{COMMIT_SUCCESS}" if whole else ""
        return iter([*numbered, *(BucketSave(0, name, True, message) for name in whole[:1])])


def is_unnumbered(folder: Path) -> bool:
    """Return whether a folder is a save without a number: `StandardCheckpointer.save(path, force=True)`."""
    return not folder.name[-1:].isdigit() and STAGING not in folder.name and (folder / METADATA).is_file()


def _is_orbax(folder: Path) -> bool:
    """Return whether a folder contains a file of Orbax, or is named like a staging folder."""
    return STAGING in folder.name or any((folder / sign).exists() for sign in _SIGNS)


def _before_metadata(folder: Path) -> SaveVerdict:
    """Judge a folder without `_CHECKPOINT_METADATA`: a save of Orbax up to 0.5, or one that has just begun."""
    items = [folder, *(path for path in entries(folder) if path.is_dir())]
    if any(STAGING in path.name for path in items):
        return unfinished("an item in it was never renamed")
    trees = [path for path in items if any((path / name).is_file() for name in _TREE)]
    if not trees:
        return unfinished(f"neither {METADATA} nor a saved tree is in it")
    for path in items:
        # Each process writes its own part; the manifest that joins them comes last.
        if any(path.glob("ocdbt.process_*")) and not (path / "manifest.ocdbt").exists():
            return unfinished(f"no manifest.ocdbt in {path.name}")
    return complete()
