"""
Keras 3 BackupAndRestore: one pair of files, rewritten in place, weights first and metadata second.

Its step is the epoch: Keras restarts the epoch at its first batch. A truncated weights file crashes every
start.
"""

from __future__ import annotations

from pathlib import Path
from typing import Iterator, List

from orchestrator.contract.formats.base import (
    BucketSave,
    Format,
    Listing,
    LocalSave,
    SaveVerdict,
    complete,
    torn,
    unfinished,
)
from orchestrator.contract.formats.reading.whole import copy_over, h5_damage
from orchestrator.contract.json_values import json_object, json_value, whole_number

WEIGHTS = "latest.weights.h5"
METADATA = "training_metadata.json"
BACKUP = ".bkp"


class Keras(Format):
    """Check the pair, and the older pair that `double_checkpoint=True` keeps."""

    name = "keras"
    wants = f"{WEIGHTS} and {METADATA}, as BackupAndRestore writes them"

    def find(self, root: Path) -> List[LocalSave]:
        found = []
        for rank, suffix in enumerate((BACKUP, "")):
            files = (WEIGHTS + suffix, METADATA + suffix)
            if any((root / name).exists() for name in files):
                there = tuple(name for name in files if (root / name).exists())
                found.append(LocalSave(0, WEIGHTS + suffix, ".", there, rank))
        return found

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        suffix = BACKUP if save.name.endswith(BACKUP) else ""
        weights, metadata = root / (WEIGHTS + suffix), root / (METADATA + suffix)
        for path in (weights, metadata):
            if not path.exists():
                return unfinished(f"no {path.name}")
        # Keras writes both in place: a kill between them leaves new weights beside the old epoch.
        damage = h5_damage(weights)
        if damage:
            return torn(damage)
        value = json_object(metadata)
        if value is None:
            return torn(f"{metadata.name} cannot be read")
        epoch = whole_number(value.get("epoch"))
        return torn(f"{metadata.name} tells no epoch") if epoch is None else complete(epoch)

    def closes(self, name: str) -> bool:
        return name.startswith(METADATA)

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        """Yield the pair in the bucket, where Keras uploads each file whole."""
        value = json_value(listing.read(METADATA)) if METADATA in listing.names else None
        epoch = whole_number((value or {}).get("epoch"))
        if epoch is not None or WEIGHTS in listing.names:
            there = epoch is not None and WEIGHTS in listing.names
            message = f"{WEIGHTS} and {METADATA}" if there else f"{WEIGHTS} or {METADATA} is missing"
            yield BucketSave(epoch or 0, WEIGHTS, there, message, (WEIGHTS, METADATA))

    def repair(self, root: Path, chosen: LocalSave) -> List[str]:
        """Put the older pair, if *chosen*, in the place of the damaged one."""
        if not chosen.name.endswith(BACKUP) or (root / WEIGHTS).exists():
            return []
        # Weights first, as Keras does: after a kill between the two there is no metadata, so the pair
        # does not count.
        for name in (WEIGHTS, METADATA):
            copy_over(root / (name + BACKUP), root / name)
        return [f"{WEIGHTS} and {METADATA} were made from {BACKUP}"]
