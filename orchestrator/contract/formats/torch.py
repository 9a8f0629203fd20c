"""
Hand-written training loop with torch.save: `step_000040.pt`, then the pointer `last.json`.

Both are written by temporary file and rename; the pointer holds `{"step": 40, "file": "step_000040.pt"}`.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import List, Optional

from orchestrator.contract.formats.base import (
    Format,
    LocalSave,
    SaveVerdict,
    complete,
    entries,
    torn,
    unfinished,
)
from orchestrator.contract.formats.marker import step_of
from orchestrator.contract.formats.reading.whole import zip_damage
from orchestrator.contract.json_values import json_object
from orchestrator.contract.replacing import write_atomically

POINTER = "last.json"
_FILE = re.compile(r"(?:.*\D)?\d+\.(?:pt|pth)(\.tmp)?")


class Torch(Format):
    """
    Accept files up to the one that the pointer names; later ones were not announced yet.

    torchrun exits with status 1 if any rank does not exit with 0, so 1 may be an orderly stop.
    """

    name = "torch"
    wants = f"a numbered .pt or .pth file, and {POINTER} that names it"
    stopped_codes = frozenset({1, 143})
    pointers = (POINTER,)

    def find(self, root: Path) -> List[LocalSave]:
        named = [(_FILE.fullmatch(path.name), path) for path in entries(root) if path.is_file()]
        return [
            LocalSave(step_of(path.name) or 0, path.name, ".", (path.name,)) for match, path in named if match
        ]

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        if save.name.endswith(".tmp"):
            return unfinished("it was never renamed")
        damage = zip_damage(root / save.name)
        if damage:
            return torn(damage)
        # Read after the archive was checked, so that a save which ends meanwhile is not called unfinished.
        last = _pointed(root)
        if last is None:
            return unfinished(f"{POINTER} is missing or cannot be read")
        reached = step_of(last)
        return (
            complete()
            if reached is not None and save.step <= reached
            else unfinished(f"{POINTER} names {last}")
        )

    def repair(self, root: Path, chosen: LocalSave) -> List[str]:
        before = _pointed(root)
        if before == chosen.name:
            return []
        # Other keys that the program keeps in it stay.
        held = json_object(root / POINTER) or {}
        text = json.dumps(dict(held, step=chosen.step, file=chosen.name))
        write_atomically(root / POINTER, text + "\n")
        return [f"{POINTER} named {before or 'nothing'}, it names {chosen.name} now"]


def _pointed(root: Path) -> Optional[str]:
    """Return the name of the file that the pointer names, None if it names none."""
    name = (json_object(root / POINTER) or {}).get("file")
    return Path(name).name if isinstance(name, str) and name else None
