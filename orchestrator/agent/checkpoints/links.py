"""Handle symbolic links beside checkpoints: many programs find their newest save by `latest -> step_40`."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path
from typing import Iterable, List, Tuple

from orchestrator.contract.bucket.manifest import MAX_LINKS
from orchestrator.contract.formats.base import LocalSave

DEEPEST = 8


def links_of(root: Path, save: LocalSave) -> Tuple[Tuple[str, str], ...]:
    """
    Return the links below *root* to files of a save, as (name, target) relative to *root*. Never raises.

    A link to another save, or out of the folder, is left out.
    """
    found: List[Tuple[str, str]] = []
    with contextlib.suppress(OSError):
        top = Path(os.path.realpath(str(root)))
        for name in _names(root):
            # Both resolved, since the checkpoint folder itself may be reached through a link.
            target = os.path.relpath(os.path.realpath(str(root / name)), str(top))
            if not target.startswith("..") and target != "." and _is_in(save, target):
                found.append((name, target))
    return tuple(sorted(found)[:MAX_LINKS])


def make_links(root: Path, links: Iterable[Tuple[str, str]]) -> None:
    """Create the links again, replacing only links and only below real folders. Raise OSError."""
    top = os.path.realpath(str(root))
    for name, target in links:
        path = root / name
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        # The program has replaced the folder by a file, which is newer.
        except (FileExistsError, NotADirectoryError):
            continue
        here = os.path.realpath(str(path.parent))
        if here != top and not here.startswith(top + os.sep):
            continue  # An existing link leads out of the folder.
        if path.exists() and not path.is_symlink():
            continue
        # A hash, because a suffix could make the name too long.
        building = path.with_name(f".{hashlib.sha256(os.fsencode(path.name)).hexdigest()[:32]}.link")
        with contextlib.suppress(FileNotFoundError):
            building.unlink()
        building.symlink_to(os.path.relpath(os.path.join(top, target), here))  # noqa: PTH118 (two texts)
        building.replace(path)


def _names(root: Path) -> List[str]:
    found = []
    for here, folders, files in os.walk(str(root)):
        base = Path(here).relative_to(root)
        found += [(base / one).as_posix() for one in (*folders, *files) if (Path(here) / one).is_symlink()]
        if len(base.parts) >= DEEPEST:
            folders.clear()
    return found


def _is_in(save: LocalSave, target: str) -> bool:
    """Return whether a file or folder belongs to a save."""
    if save.files is None:
        return target == save.folder or target.startswith(f"{save.folder}/")
    start = "" if save.folder == "." else f"{save.folder}/"
    return any(start + one == target or (start + one).startswith(f"{target}/") for one in save.files)
