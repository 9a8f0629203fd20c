"""
TensorFlow `Checkpoint` and Estimator: `ckpt-N.index`, `ckpt-N.data-*` and the text file `checkpoint`.

The data are merged from `ckpt-N_temp` by rename, the index follows, and `checkpoint` is last.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Dict, Iterator, List, Sequence, Tuple

from orchestrator.contract.formats.base import (
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
from orchestrator.contract.formats.marker import step_of
from orchestrator.contract.formats.reading.sstable import shard_sizes
from orchestrator.contract.replacing import write_atomically

POINTER = "checkpoint"
_FILE = re.compile(r"(.+-\d+)\.(index|meta|data-\d{5}-of-\d{5})")
_STAGING = re.compile(r"(.+-\d+)_temp.*")
_SHARD = re.compile(r".+\.data-(\d{5})-of-(\d{5})")
_NAMED = re.compile(r'^(all_)?model_checkpoint_paths?: "(.*)"$', re.MULTILINE)


class TensorFlow(Format):
    """
    Require the index, every shard and the name in `checkpoint`; the index has the sizes of the shards.

    PreemptionCheckpointHandler exits with status 42 after its save.
    """

    name = "tf"
    wants = f"PREFIX-N.index, all of its data files, and the file {POINTER} that names it"
    stopped_codes = frozenset({42})
    pointers = (POINTER,)

    def find(self, root: Path) -> List[LocalSave]:
        """Return the checkpoints by prefix, and staging folders that a kill has left."""
        found: Dict[str, List[str]] = {}
        staging = []
        for path in entries(root):
            match = _FILE.fullmatch(path.name)
            if match and path.is_file():
                found.setdefault(match[1], []).append(path.name)
            elif _STAGING.fullmatch(path.name) and path.is_dir():
                staging.append(LocalSave(step_of(path.name) or 0, path.name, path.name))
        saves = [LocalSave(step_of(name) or 0, name, ".", tuple(files)) for name, files in found.items()]
        return [*staging, *saves]

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        if save.files is None:
            return unfinished("a staging folder that was never merged")
        damage = missing_part(save.name, save.files)
        if damage:
            return unfinished(damage)
        # The index is written after the data and has their sizes, which is all that can be checked.
        sizes = shard_sizes((root / f"{save.name}.index").read_bytes())
        if sizes is None:
            return torn(f"{save.name}.index is torn")
        for name in save.files:
            match = _SHARD.fullmatch(name)
            have = (root / name).stat().st_size
            if match and have < sizes.get(int(match[1]), 0):
                return torn(f"{name} has {have} bytes, its index says {sizes[int(match[1])]}")
        try:
            # TensorFlow resumes from what this file names, even if another checkpoint is whole.
            text = (root / POINTER).read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            text = ""
        return complete() if save.name in named_in(text) else unfinished(f"not named in {POINTER}")

    def closes(self, name: str) -> bool:
        return name.endswith(".index")

    def resume(self, root: str, save: LocalSave) -> str:
        """Return the prefix, which is what TensorFlow's restore takes."""
        return f"{root.rstrip('/')}/{save.name}"

    def repair(self, root: Path, chosen: LocalSave) -> List[str]:
        """Make `checkpoint` name *chosen* as the latest, and the older whole ones before it."""
        path = root / POINTER
        before = named_in(path.read_text(encoding="utf-8", errors="replace")) if path.exists() else ()
        if before[:1] == (chosen.name,):
            return []
        # All whole ones, oldest first: CheckpointManager removes only what this file names.
        saves = sorted(self.find(root), key=lambda one: one.step)
        whole = [
            one.name
            for one in saves
            if one.files and one.step < chosen.step and not missing_part(one.name, one.files)
        ]
        names = (*whole, chosen.name)
        times = [(root / f"{name}.index").stat().st_mtime for name in names]
        # Without the times CheckpointManager ignores all entries and never removes them.
        lines = [f'model_checkpoint_path: "{chosen.name}"']
        lines += [f'all_model_checkpoint_paths: "{name}"' for name in names]
        lines += [f"all_model_checkpoint_timestamps: {time}" for time in times]
        lines += [f"last_preserved_timestamp: {min(times) - 1}"]
        write_atomically(path, "\n".join(lines) + "\n")
        return [f"{POINTER} named {before[0] if before else 'nothing'}, it names {chosen.name} now"]

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        """Yield the checkpoints in the bucket, where each object exists whole or not at all."""
        found: Dict[str, List[str]] = {}
        for match in filter(None, map(_FILE.fullmatch, listing.names)):
            found.setdefault(match[1], []).append(match[0])
        named = named_in((listing.read(POINTER) or b"").decode("utf-8", "replace")) if found else ()
        for name in sorted(found, key=lambda one: step_of(one) or 0, reverse=True):
            damage = missing_part(name, found[name]) or ("" if name in named else f"not named in {POINTER}")
            yield BucketSave(step_of(name) or 0, name, not damage, damage or f"named in {POINTER}")


def named_in(text: str) -> Tuple[str, ...]:
    """Return the prefixes that the file `checkpoint` names, the latest first, without folders."""
    found = [(bool(other), name.rsplit("/", 1)[-1]) for other, name in _NAMED.findall(text)]
    return tuple(name for _, name in sorted(found, key=lambda one: one[0]))


def missing_part(name: str, files: Sequence[str]) -> str:
    """Return what is missing of a checkpoint by its file names, empty if nothing is."""
    if f"{name}.index" not in files:
        return f"no {name}.index"
    shards = [(int(match[1]), int(match[2])) for match in map(_SHARD.fullmatch, files) if match]
    if not shards:
        return "no data file"
    count = shards[0][1]
    absent = sorted(set(range(count)) - {number for number, of in shards if of == count})
    return f"no {name}.data-{absent[0]:05d}-of-{count:05d}" if absent else ""
