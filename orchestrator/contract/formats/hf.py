"""
Hugging Face Trainer 5: `checkpoint-N` folders, written in place, `trainer_state.json` last.

The Trainer resumes from the largest N without checking its files. A torn model or a missing state file then
crashes every start, and without `optimizer.pt` it silently continues with a fresh optimizer.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Optional

from orchestrator.contract.formats.base import (
    Format,
    LocalSave,
    SaveState,
    SaveVerdict,
    complete,
    entries,
    torn,
    unfinished,
)
from orchestrator.contract.formats.reading.whole import safetensors_damage, zip_damage
from orchestrator.contract.json_values import json_object, whole_number
from orchestrator.contract.preemption_notice import TRAINER_SAVES

STATE = "trainer_state.json"
SENTINEL = "checkpoint-is-incomplete.txt"
_FOLDER = re.compile(r"checkpoint-(\d+)")
_RESUME = ("*optimizer*", "scheduler.pt", "rng_state*.pth", "global_step*")
_SHARDED = ("pytorch_model_fsdp*", "global_step*", "rank*-of-*")
"""Names with which FSDP and DeepSpeed save, one part from each process."""
_PART = re.compile(r"(.+)-\d{5}-of-(\d{5})(\.safetensors|\.bin)")


class HuggingFace(Format):
    """
    Check every file that a full resume needs.

    A graceful stop (`enable_jit_checkpoint`) takes 3 s plus the save and exits with status 0, like a finished
    training. So status 0 counts only if the newest checkpoint has reached `max_steps`.
    """

    name = "hf"
    wants = f"a folder checkpoint-N with weights, optimizer, random state and {STATE}"
    grace = TRAINER_SAVES
    stopped_codes = frozenset({0})
    zero_proves = False

    def find(self, root: Path) -> List[LocalSave]:
        named = [(_FOLDER.fullmatch(path.name), path) for path in entries(root)]
        return [
            LocalSave(int(match[1]), path.name, path.name) for match, path in named if match and path.is_dir()
        ]

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        """Check the state file first: it is written last, so without it the save never ended."""
        folder = root / save.folder
        # The Trainer creates it before a save at a stop signal, and removes it when the save is whole.
        if (folder / SENTINEL).exists():
            return unfinished(f"{SENTINEL} is there")
        if not (folder / STATE).exists():
            return unfinished(f"no {STATE}")
        state = json_object(folder / STATE)
        if state is None:
            return torn(f"{STATE} cannot be read")
        if state.get("global_step") != save.step:
            return torn(f"{STATE} says step {state.get('global_step')}")
        damage = _model_damage(folder)
        if not damage and not any(any(folder.glob(name)) for name in _RESUME):
            # The state file comes last, so a file that is absent now was never going to be written.
            return SaveVerdict(
                SaveState.NOT_RESUMABLE, "no optimizer, schedule or random state (save_only_model)"
            )
        damage = damage or _resume_damage(folder)
        return torn(damage) if damage else complete()

    def closes(self, name: str) -> bool:
        return name == STATE

    def target(self, root: Path, save: LocalSave) -> Optional[int]:
        return whole_number((json_object(root / save.folder / STATE) or {}).get("max_steps"))


def _model_damage(folder: Path) -> str:
    weights = sorted(folder.glob("*.safetensors"))
    older = sorted(folder.glob("pytorch_model*.bin"))
    if not weights and not older:
        sharded = any(any(folder.glob(name)) for name in _SHARDED)
        return "" if sharded else "no model weights"
    names = {path.name for path in (*weights, *older)}
    for index in sorted(folder.glob("*.index.json")):
        # The index names all parts, so a missing one is found without reading the others.
        parts = (json_object(index) or {}).get("weight_map")
        if not isinstance(parts, dict):
            return f"{index.name} cannot be read"
        absent = sorted(set(map(str, parts.values())) - names)
        if absent:
            return f"{absent[0]} is missing"
    for name in sorted(names):
        part = _PART.fullmatch(name)
        if part and len([one for one in names if one.startswith(f"{part[1]}-")]) < int(part[2]):
            return f"parts of {part[1]} are missing"
    found = [*map(safetensors_damage, weights), *map(zip_damage, older)]
    return next((damage for damage in found if damage), "")


def _resume_damage(folder: Path) -> str:
    """Return why optimizer, schedule or random state cannot be restored; empty if they can."""
    random = sorted(folder.glob("rng_state*.pth"))
    if not random:
        return "no rng_state.pth"
    sharded = any(any(folder.glob(name)) for name in _SHARDED)
    for path in (folder / "optimizer.pt", folder / "scheduler.pt", *random):
        # FSDP and DeepSpeed keep the optimizer in folders of their own.
        if not path.exists() and sharded:
            continue
        damage = zip_damage(path) if path.exists() else f"no {path.name}"
        if damage:
            return damage
    return ""
