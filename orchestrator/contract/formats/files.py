"""
Single files, numbered or replaced in place, as Lightning, nanoGPT, torchvision, numpy and most loops write them.

The newest save is one save: every file that is replaced in place (`last.ckpt`, `best.pt`), the newest of each
numbered series (`model_000100.pt` with `optim_000100.pt` and `meta_000100.json`), and the small files beside
them. So whatever the program reads at its start is restored under its own name.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Optional, Set, Tuple

from orchestrator.contract.formats.base import (
    LONG,
    PATIENT,
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
)
from orchestrator.contract.formats.reading.file_damage import damage_of, has_checksums
from orchestrator.contract.formats.reading.inside import position_in
from orchestrator.contract.formats.reading.numbered_names import NameKind, numbered
from orchestrator.contract.formats.reading.save_like import is_temporary
from orchestrator.contract.formats.reading.saved_files import (
    Saves,
    among,
    base_of,
    group,
    main_of,
    step_folder_of,
    unknown,
)

DEEPEST = 8
MAX_FILES, MAX_OBJECTS = 5000, 100_000
"""Most files of a folder, and objects of the bucket, that are examined."""


class Files(Format):
    """
    Judge a file by its own structure (checksums of a zip, lengths in a header, opcodes of a pickle).

    *assigned* returns the folders that belong to another format.
    """

    name = "files"
    wants = "a whole file that looks like a save: .pt, .pth, .ckpt, .npz, .npy, .safetensors, .h5 or the like"

    def __init__(self, assigned: Callable[[str], bool] = lambda _folder: False) -> None:
        self._assigned = assigned
        self._saves: Dict[Tuple[str, ...], Saves] = {}
        self._several = False
        self._finished: Set[str] = set()

    def find(self, root: Path) -> List[LocalSave]:
        """Return the newest save, and the older numbered files."""
        names = [path.relative_to(root).as_posix() for path in self._walk(root, root, 0)]
        # A folder with random state only is another machine's view of worker 0's save.
        saved = {name.rpartition("/")[0] for name in names if not self.follows(name)}
        names = [name for name in names if not self.follows(name) or name.rpartition("/")[0] in saved]
        saves = group(list(among(names, lambda name: _about(root / name))))
        self._several = self._several or any(
            len(ones) > 1 for ones in (saves.newest, *dict(saves.older).values())
        )
        self._finished = set() if self._several else _finished(saves)
        leans = any(one.number is None and not one.side for one in saves.head)
        found = [
            LocalSave(number, ones[0].name, ".", tuple(sorted(one.name for one in ones)), leans=leans)
            for number, ones in saves.older
            if ones[0].kind is not NameKind.TIME
        ]
        if saves.head:
            files = tuple(sorted({one.name for one in saves.head}))
            self._saves = {files: saves}
            found.append(LocalSave(UNKNOWN, main_of(saves), ".", files, rank=1, live=True))
        return found

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        """Read every file to its end; for the newest save also find its step in the content."""
        unknown = False
        saves = self._saves.get(save.files or ())
        sides = {one.name for one in saves.head if one.side} if saves else set()
        for name in save.files or ():
            if name in sides and not numbered(base_of(name)):
                continue  # It may be written at any time, and no resume fails because of it.
            # Every byte is read: a truncated file often begins well.
            damage = damage_of(root / name)
            if damage:
                return torn(damage)
            unknown = unknown or (damage is None and name not in sides)
        if saves is None or not save.live:
            finished = not unknown and self._finished.issuperset(save.files or ("",))
            return complete(None, PATIENT if unknown else 0 if finished else QUIET)
        # The number of files in such a save is unknown, so a file that is still to come cannot be missed by name.
        alone = not saves.older and any(one.in_folder for one in saves.newest)
        rest = LONG if saves.missing else PATIENT if unknown or alone else QUIET
        step = _step(root, saves)
        checked = all(has_checksums(root / name) for name in save.files or ())
        return complete(UNKNOWN if step is None else step, rest, checked=checked)

    def resume(self, root: str, save: LocalSave) -> str:
        """Return the file that most likely holds the state, or the folder if the save is one."""
        saves = self._saves.get(save.files or ())
        return f"{root.rstrip('/')}/{main_of(saves) if saves else (save.files or ('',))[0]}"

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        """Yield the files in the bucket, where each exists whole or not at all."""
        saves = group(list(among(listing.names[:MAX_OBJECTS], unknown)))
        main = [one for one in saves.newest or saves.head if not one.side]
        if main:
            number = main[0].number if main[0].kind is not NameKind.TIME else None
            names = tuple(sorted({one.name for one in saves.head}))
            message = f"{saves.missing[0]} is not there yet" if saves.missing else main[0].name
            yield BucketSave(number or 0, main[0].name, not saves.missing, message, names)
        for older, ones in reversed(saves.older):
            if ones[0].kind is not NameKind.TIME:
                names = tuple(sorted(one.name for one in ones))
                yield BucketSave(older, ones[0].name, True, ones[0].name, names)

    def _enters(self, root: Path, folder: Path) -> bool:
        # A link may lead out of the folder, or upwards into an endless walk.
        if folder.is_symlink() or not folder.is_dir():
            return False
        return not self._assigned(folder.relative_to(root).as_posix())

    def _walk(self, root: Path, folder: Path, depth: int) -> Iterator[Path]:
        count = 0
        # Frameworks put names with a dot into their own folders (`.zarray`); elsewhere a dot means hidden.
        inside = step_folder_of(f"{folder.relative_to(root).as_posix()}/x") != ""
        for path in sorted(folder.iterdir()) if inside else entries(folder):
            if is_temporary(path.name):
                continue
            if path.is_file():
                # Its bytes are in the save already; the link itself is restored from the manifest.
                if not _is_link_inside(root, path):
                    yield path
            elif depth < DEEPEST and self._enters(root, path):
                yield from self._walk(root, path, depth + 1)
            count += 1
            if count > MAX_FILES:
                return


def _finished(saves: Saves) -> Set[str]:
    """Return the files, each a save by itself, after which the program has written the next of its series."""
    last = saves.newest[0] if saves.newest else None
    ones = [one for _number, found in saves.older for one in found]
    return {one.name for one in ones if last and one.series == last.series and one.at <= last.at}


def _step(root: Path, saves: Saves) -> Optional[int]:
    """Return the newest save's step, from file names and from the content of files that are replaced in place."""
    steps: List[int] = []
    epochs: List[int] = []
    for one in saves.head:
        if one.side and not one.name.endswith(".json"):
            continue
        if one.number is None:
            position = position_in(root / one.name)
            steps += [] if position.step is None else [position.step]
            epochs += [] if position.epoch is None else [position.epoch]
        elif one in saves.newest:
            inside = (
                position_in(root / one.name).step if one.kind in (NameKind.EPOCH, NameKind.TIME) else None
            )
            if inside is not None:
                steps.append(inside)
            elif one.kind is NameKind.STEP or one.kind is NameKind.PLAIN:
                steps.append(one.number)
            elif one.kind is NameKind.EPOCH:
                epochs.append(one.number)
    return max(steps or epochs, default=None)


def _is_link_inside(root: Path, path: Path) -> bool:
    """Return whether a path links to another file of the folder: such links are restored as links."""
    if not path.is_symlink():
        return False
    return os.path.realpath(str(path)).startswith(os.path.realpath(str(root)) + os.sep)


def _about(path: Path) -> Tuple[int, float]:
    try:
        state = path.stat()
    except OSError:
        return 0, 0.0
    return state.st_size, state.st_mtime
