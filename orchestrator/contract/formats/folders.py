"""Folders of one save with a known last file: torch.distributed.checkpoint, accelerate and Levanter."""

from __future__ import annotations

import re
from pathlib import Path
from typing import AbstractSet, Iterator, List

from orchestrator.contract.formats.base import (
    QUIET,
    UNKNOWN,
    BucketSave,
    Format,
    Listing,
    LocalSave,
    SaveVerdict,
    complete,
    entries,
    torn,
    unfinished,
)
from orchestrator.contract.formats.marker import folders_with, step_of
from orchestrator.contract.formats.reading.file_damage import damage_of
from orchestrator.contract.json_values import json_object, whole_number


class StepFolders(Format):
    """
    Find the folders that look like the format's own; subclasses define which, and what *last* is.

    A folder without a number in its name is overwritten by each save.
    """

    last = ""

    def mine(self, name: str, names: AbstractSet[str]) -> bool:
        """Return whether a folder of that name, with these names in it, is a save of this format."""
        raise NotImplementedError

    def find(self, root: Path) -> List[LocalSave]:
        found = []
        for path in entries(root):
            # By names alone, because each poll does this and checkpoint files are large.
            if path.is_dir() and self.mine(path.name, names_in(path)):
                step = step_of(path.name)
                found.append(
                    LocalSave(UNKNOWN if step is None else step, path.name, path.name, live=step is None)
                )
        return found

    def closes(self, name: str) -> bool:
        return name == self.last

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        return folders_with(listing, self.last)


class Distributed(StepFolders):
    """torch.distributed.checkpoint: one file from each process, then `.metadata`, renamed into place."""

    name = "dcp"
    wants = "a folder with *.distcp files and .metadata"
    last = ".metadata"

    def mine(self, name: str, names: AbstractSet[str]) -> bool:
        return self.last in names or any(one.endswith(".distcp") for one in names)

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        folder = root / save.folder
        if not (folder / self.last).is_file():
            return unfinished(f"no {self.last} in it")
        # The parts were closed before the metadata is renamed; empty ones mean that the disk was full.
        parts = sorted(folder.glob("*.distcp"))
        if not parts or not (folder / self.last).stat().st_size:
            return torn("its files are empty" if parts else "no *.distcp in it")
        return complete(UNKNOWN if save.live else None, QUIET if save.live else 0)


class Accelerate(StepFolders):
    """
    accelerate 1.x `save_state`: model, optimizer, schedule, sampler, then `random_states_N.pkl`.

    Objects that the user has registered follow, so the folder must also be unchanged for a while.
    """

    name = "accelerate"
    wants = "a folder of save_state with whole files, random_states_0.pkl among them"
    last = "random_states_0.pkl"

    def mine(self, name: str, names: AbstractSet[str]) -> bool:
        return self.last in names or ("optimizer.bin" in names and "trainer_state.json" not in names)

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        folder = root / save.folder
        if not (folder / self.last).is_file():
            return unfinished(f"no {self.last} in it")
        # Objects registered by the user are written after the file that is otherwise last.
        for path in sorted(folder.rglob("*")):
            damage = damage_of(path) if path.is_file() else ""
            if damage:
                return torn(damage)
        return complete(UNKNOWN if save.live else None, QUIET)


class Levanter(StepFolders):
    """Levanter: `step-N` with the arrays, then `metadata.json`, which names the step."""

    name = "levanter"
    wants = "a folder step-N with metadata.json"
    last = "metadata.json"
    _folder = re.compile(r"step-\d+")

    def mine(self, name: str, names: AbstractSet[str]) -> bool:
        arrays = bool({"model", "opt_state", "training_key", "model_averaging"} & names)
        return self._folder.fullmatch(name) is not None and (arrays or self.last in names)

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        path = root / save.folder / self.last
        if not path.is_file():
            return unfinished(f"no {self.last} in it")
        value = json_object(path)
        if value is None:
            return torn(f"{self.last} cannot be read")
        # Otherwise a folder that was copied or renamed by hand would be resumed as another step.
        step = whole_number(value.get("step"))
        return torn(f"{self.last} says step {step}") if step not in (None, save.step) else complete()


def names_in(folder: Path) -> AbstractSet[str]:
    """Return the names in a folder, including hidden ones; empty if it vanishes."""
    try:
        return {path.name for path in folder.iterdir()}
    except OSError:
        return set()
