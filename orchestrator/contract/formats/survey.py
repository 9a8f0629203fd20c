"""Find the folders with saves of each format, on disk and in the bucket, by names alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import AbstractSet, Dict, List, Set, Tuple

from orchestrator.contract.formats.base import Listing, entries
from orchestrator.contract.formats.fairseq import LAST as FAIRSEQ_LAST
from orchestrator.contract.formats.files import DEEPEST
from orchestrator.contract.formats.folders import Accelerate, Distributed, Levanter, names_in
from orchestrator.contract.formats.hf import STATE as HF_STATE
from orchestrator.contract.formats.keras import METADATA as KERAS_METADATA
from orchestrator.contract.formats.orbax import COMMIT_SUCCESS, STAGING
from orchestrator.contract.formats.orbax import METADATA as ORBAX_METADATA
from orchestrator.contract.formats.tf import POINTER as TF_POINTER
from orchestrator.contract.formats.torch import POINTER as TORCH_POINTER

ROOT = "."
"""Name of the folder of all checkpoints if it is itself one save."""
_MOST_FOLDERS = 1000
_MOST_LEVELS = 60
_NEWEST = 4
_HF_FOLDER = re.compile(r"checkpoint-\d+")
_HF = frozenset(
    {HF_STATE, "optimizer.pt", "training_args.bin", "config.json", "model.safetensors"}
    | {"adapter_model.safetensors", "model.safetensors.index.json", "rng_state.pth"}
)
_TREE = frozenset({"_METADATA", "manifest.ocdbt", "_sharding"})
_FOLDERS = (Accelerate(), Distributed(), Levanter())


@dataclass(frozen=True)
class FolderSurvey:
    """The folders with saves of each format, the folders that are saves, and the files."""

    bases: Dict[str, Set[str]]
    assigned: AbstractSet[str]
    files: Tuple[str, ...] = ()


def owner_of(folder: str, names: AbstractSet[str], marker: str) -> str:
    """Return the format whose save a folder is, by its name and the names in it; empty for none. Pure."""
    ends_in_digit = folder[-1:].isdigit()
    if STAGING in folder:
        return "orbax"
    # Before every framework, because the user has defined what a finished save looks like.
    if marker in names and any(sign.isdigit() for sign in folder):
        return "marker"
    if COMMIT_SUCCESS in names or ORBAX_METADATA in names:
        return "orbax"
    if _HF_FOLDER.fullmatch(folder) and names & _HF:
        return "hf"
    for format_ in _FOLDERS:
        if format_.mine(folder, names):
            return format_.name
    return "orbax" if ends_in_digit and names & _TREE else ""


def beside(names: AbstractSet[str]) -> List[str]:
    """Return the formats that keep files of several saves in one folder, as these names show. Pure."""
    return [
        name
        for name, is_there in (
            ("keras", KERAS_METADATA in names),
            ("tf", TF_POINTER in names and any(one.endswith(".index") for one in names)),
            ("fairseq", FAIRSEQ_LAST in names),
            ("torch", TORCH_POINTER in names),
        )
        if is_there
    ]


def survey(root: Path, marker: str) -> FolderSurvey:
    """Survey the folder of all checkpoints and a few levels below it; the inside of a save is skipped."""
    bases: Dict[str, Set[str]] = {}
    assigned: Set[str] = set()
    owner = owner_of("", names_in(root), marker)
    if owner:
        bases[owner] = {ROOT}
    ahead: List[Tuple[str, int]] = [("", 0)]
    count = 0
    while ahead and count < _MOST_FOLDERS:
        base, depth = ahead.pop(0)
        count += 1
        here = entries(root / base)
        for name in beside({path.name for path in here if path.is_file()}):
            bases.setdefault(name, set()).add(base)
        for path in here:
            # A link may lead upwards into an endless walk.
            if not path.is_dir() or path.is_symlink():
                continue
            inside = f"{base}/{path.name}" if base else path.name
            # A save's inner folders would be taken for saves of their own.
            owner = owner_of(path.name, names_in(path), marker) or _old_orbax(path)
            if owner:
                bases.setdefault(owner, set()).add(base)
                assigned.add(inside)
            elif depth < DEEPEST:
                ahead.append((inside, depth + 1))
    return FolderSurvey(bases, assigned)


def survey_bucket(listing: Listing, marker: str) -> FolderSurvey:
    """Survey the bucket in the same way; of the numbered folders only the newest ones."""
    bases: Dict[str, Set[str]] = {}
    files: List[str] = []
    ahead: List[Tuple[str, Listing, int]] = [("", listing, 0)]
    count = 0
    while ahead and count < _MOST_LEVELS:
        base, level, depth = ahead.pop(0)
        count += 1
        lead = f"{base}/" if base else ""
        for name in beside(frozenset(level.names)):
            bases.setdefault(name, set()).add(base)
        files += [lead + name for name in level.names]
        for folder in _worth_reading(level.folders):
            # One list of the bucket each, which costs money, so the number is bounded above.
            below = level.below(folder)
            name = folder.rstrip("/")
            held = {*below.names, *(one.rstrip("/") for one in below.folders)}
            owner = owner_of(name, held, marker)
            if owner:
                bases.setdefault(owner, set()).add(base)
            elif depth < DEEPEST:
                ahead.append((lead + name, below, depth + 1))
    return FolderSurvey(bases, frozenset(), tuple(files))


def _worth_reading(folders: Tuple[str, ...]) -> List[str]:
    """Return the folders without a number, and the newest of those with one."""
    numbers = {folder: re.findall(r"\d+", folder) for folder in folders}
    stepped = sorted((one for one in folders if numbers[one]), key=lambda one: int(numbers[one][-1]))
    return [*(one for one in folders if not numbers[one]), *stepped[-_NEWEST:]]


def _old_orbax(folder: Path) -> str:
    """Recognise a save of Orbax before 0.6, which only its items reveal."""
    if not folder.name[-1:].isdigit():
        return ""
    items = (path for path in entries(folder) if path.is_dir())
    return "orbax" if any(STAGING in path.name or names_in(path) & _TREE for path in items) else ""
