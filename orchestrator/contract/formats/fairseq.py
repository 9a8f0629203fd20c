"""
fairseq 0.12: single files; the first name of each save is renamed into place.

`checkpoint_best.pt` and `checkpoint_last.pt` are then copied over the old ones, and a kill during that copy
leaves a truncated file. fairseq resumes from `checkpoint_last.pt` only, so a truncated one crashes every
later start.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List

from orchestrator.contract.formats.base import (
    Format,
    LocalSave,
    SaveVerdict,
    complete,
    entries,
    torn,
    unfinished,
)
from orchestrator.contract.formats.reading.pickled import updates_in
from orchestrator.contract.formats.reading.whole import copy_over, zip_damage

LAST = "checkpoint_last.pt"
_STAGING = ".tmp"
_BY_UPDATE = re.compile(r"checkpoint_\d+_(\d+)\.pt")
_BY_EPOCH = re.compile(r"checkpoint\d+\.pt")


class Fairseq(Format):
    """
    Take the newest whole file by its number of updates; `checkpoint_last.pt` is an alias to be verified.

    It counts as a save of its own only if no other file has its update (`--no-epoch-checkpoints`).
    """

    name = "fairseq"
    wants = f"{LAST}, or a whole checkpoint_EPOCH_UPDATE.pt"

    def find(self, root: Path) -> List[LocalSave]:
        """Return the files that fairseq may resume from, and unfinished ones; *best* files are copies."""
        found = []
        for path in entries(root):
            plain = re.sub(r"\.tmp$", "", path.name)
            by_update = _BY_UPDATE.fullmatch(plain)
            if not (by_update or _BY_EPOCH.fullmatch(plain) or plain == LAST) or not path.is_file():
                continue
            # Files that are never written again precede the copies, which a kill may have truncated.
            rank = 2 if by_update else 0 if plain == LAST else 1
            step = int(by_update[1]) if by_update else 0
            found.append(LocalSave(step, path.name, ".", (path.name,), rank))
        return found

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        """Check the whole archive, and read the number of updates if the name does not show it."""
        path = root / save.name
        if save.name.endswith(_STAGING):
            return unfinished("it was never renamed")
        damage = zip_damage(path)
        if damage:
            return torn(damage)
        updates = save.step if save.rank == 2 else updates_in(path)
        return torn(f"{save.name} holds no number of updates") if updates is None else complete(updates)

    def repair(self, root: Path, chosen: LocalSave) -> List[str]:
        last, source = root / LAST, root / chosen.name
        # A best or last file may be truncated by a kill, so its content is compared, not its name.
        alias = LocalSave(0, LAST, ".", (LAST,))
        if source == last or (
            last.exists() and self.judge(root, alias).step == self.judge(root, chosen).step
        ):
            return []
        was = "replaced" if last.exists() else "made"
        copy_over(source, last)
        return [f"{LAST} was {was} from {chosen.name}"]
