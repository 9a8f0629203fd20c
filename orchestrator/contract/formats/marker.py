"""User-defined format: a folder for each save, complete once it holds the marker file, written last."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Iterator, List, Optional

from orchestrator.contract.formats.base import (
    BucketSave,
    Format,
    Listing,
    LocalSave,
    SaveVerdict,
    complete,
    entries,
    unfinished,
)

_INTEGER = re.compile(r"\d+")


def step_of(name: str) -> Optional[int]:
    """Return the step in a name: its last integer, or None."""
    found = _INTEGER.findall(name)
    return int(found[-1]) if found else None


class Marker(Format):
    """Look for folders with a number in their name and for *marker* in them."""

    name = "marker"

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self.wants = f"a folder with a number in its name and a file {marker} in it"

    def find(self, root: Path) -> List[LocalSave]:
        found = []
        for path in entries(root):
            step = step_of(path.name)
            if step is not None and path.is_dir():
                found.append(LocalSave(step, path.name, path.name))
        return found

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        there = (root / save.folder / self._marker).is_file()
        return complete() if there else unfinished(f"no {self._marker} in it")

    def closes(self, name: str) -> bool:
        return name == self._marker

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        return folders_with(listing, self._marker)


def folders_with(listing: Listing, marker: str) -> Iterator[BucketSave]:
    """Yield each folder with a number, newest first; it is complete if it holds an object named *marker*."""
    # One request for each folder, newest first: the caller stops at the first complete one.
    named = [(step_of(folder.rstrip("/")), folder.rstrip("/")) for folder in listing.folders]
    for step, folder in sorted(((s, f) for s, f in named if s is not None), reverse=True):
        there = listing.has(f"{folder}/{marker}")
        yield BucketSave(step, folder, there, f"{folder}/{marker}" if there else f"no {marker} in {folder}")
