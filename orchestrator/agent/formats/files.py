"""
Single files, numbered or replaced in place: what Lightning, nanoGPT, torchvision, numpy and most loops write.

The newest save is one unit: every file that is replaced in place (`last.ckpt`, `best.pt`), the newest of each
numbered series (`model_000100.pt` with `optim_000100.pt` and `meta_000100.json`), and the small files beside
them. So whatever the program reads at its start comes back, under the names that it has.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Dict, Iterable, Iterator, List, Optional, Sequence, Set, Tuple

from .base import (
    LONG,
    PATIENT,
    QUIET,
    UNKNOWN,
    Format,
    Judgement,
    Listing,
    StoredStep,
    Unit,
    complete,
    entries,
    torn,
)
from .faults import fault_of
from .inside import told_by
from .names import Kind, numbered
from .save_like import save_folder_like, save_like

DEEPEST = 4
MOST_FILES = 5000
_SIDE = (".json", ".yaml", ".yml", ".txt", ".toml", ".cfg", ".csv")
_LARGEST_SIDE = 4 << 20
_LOG = re.compile(r"(?:log|metrics|history|events|stdout|stderr|progress)")
_UNFINISHED = re.compile(r"(?:^|[-._])(?:tmp|temp|partial|incomplete|lock)(?:[-._\d]|$)|~$")
_STEP_FOLDER = re.compile(r"\d+|(?:global_?step|iter|iteration|update)s?[-_.=]?\d+")
_BESIDE = re.compile(r"optim|sched|meta|rng|random|scaler|args|config|best|ema|token|vocab|loader")
_CURRENT = re.compile(r"last|latest|ckpt|checkpoint|snapshot|state|model")


@dataclass(frozen=True)
class Found:
    """
    Name a file that a program saved: its number and what that counts, and the series it belongs to.
    """

    name: str
    series: str
    number: Optional[int] = None
    kind: Kind = Kind.PLAIN
    in_folder: bool = False


@dataclass(frozen=True)
class Saves:
    """
    Hold the files of the newest save, which of them are numbered, and those of older ones by number.

    *missing* are the series that used to have the newest number, and do not have it yet.
    """

    head: Tuple[Found, ...]
    newest: Tuple[Found, ...]
    older: Tuple[Tuple[int, Tuple[Found, ...]], ...]
    missing: Tuple[str, ...]


def group(found: Sequence[Found]) -> Saves:
    """
    Return which files make the newest save. Pure.
    """
    series: Dict[str, Dict[int, List[Found]]] = {}
    for one in found:
        if one.number is not None:
            series.setdefault(one.series, {}).setdefault(one.number, []).append(one)
    top = max((number for held in series.values() for number in held), default=None)
    head = [one for one in found if one.number is None]
    newest: List[Found] = []
    missing = []
    leaders = [held for held in series.values() if top in held]
    for name, held in series.items():
        last = max(held)
        head += held[last]
        if last == top:
            newest += held[last]
        elif any(set(held) & set(leader) for leader in leaders):
            missing.append(name)
    chosen = {one.name for one in head}
    older: Dict[int, List[Found]] = {}
    for one in found:
        if one.number is not None and one.name not in chosen:
            older.setdefault(one.number, []).append(one)
    by_number = tuple((number, tuple(ones)) for number, ones in sorted(older.items()))
    return Saves(tuple(head), tuple(newest), by_number, tuple(missing))


class Files(Format):
    """
    Believe a file by its own structure (checksums of a zip, lengths in a header, opcodes of a pickle).

    *claimed* tells which folders belong to another format.
    """

    name = "files"
    wants = "a whole file that looks like a save: .pt, .pth, .ckpt, .npz, .npy, .safetensors, .h5 or the like"

    def __init__(self, claimed: Callable[[str], bool] = lambda _folder: False) -> None:
        self._claimed = claimed
        self._saves: Dict[Tuple[str, ...], Saves] = {}

    def find(self, root: Path) -> List[Unit]:
        """
        Return the newest save, and the older numbered files.
        """
        names = [path.relative_to(root).as_posix() for path in self._walk(root, root, 0)]
        saves = group(list(among(names, lambda name: _is_small(root / name))))
        leans = any(one.number is None and save_like(_base(one.name)) for one in saves.head)
        units = [
            Unit(number, ones[0].name, ".", tuple(sorted(one.name for one in ones)), leans=leans)
            for number, ones in saves.older
        ]
        if saves.head:
            files = tuple(sorted({one.name for one in saves.head}))
            self._saves = {files: saves}
            units.append(Unit(UNKNOWN, main_of(saves), ".", files, rank=1, live=True))
        return units

    def judge(self, root: Path, unit: Unit) -> Judgement:
        """
        Read every file to its end; of the newest save also the step that it tells.
        """
        unknown = False
        for name in unit.files or ():
            if name.lower().endswith(_SIDE) and not numbered(Path(name).name):
                continue  # It may be written at any time, and no resume dies of it.
            fault = fault_of(root / name)
            if fault:
                return torn(fault)
            unknown = unknown or fault is None
        saves = self._saves.get(unit.files or ())
        if saves is None or not unit.live:
            return complete(None, PATIENT if unknown else QUIET)
        alone = not saves.older and any(one.in_folder for one in saves.newest)
        rest = LONG if saves.missing else PATIENT if unknown or alone else QUIET
        step = _step(root, saves)
        return complete(UNKNOWN if step is None else step, rest)

    def resume(self, root: str, unit: Unit) -> str:
        """
        Return the file that most likely holds the state, or the folder of a save that is one.
        """
        saves = self._saves.get(unit.files or ())
        return f"{root.rstrip('/')}/{main_of(saves) if saves else (unit.files or ('',))[0]}"

    def stored(self, listing: Listing) -> Iterator[StoredStep]:
        """
        Yield the files in the bucket, where each one is there whole or not at all.
        """
        saves = group(list(among(listing.names, lambda _name: True)))
        main = [one for one in saves.newest or saves.head if save_like(_base(one.name))]
        if main:
            number = main[0].number if main[0].kind is not Kind.TIME else None
            names = tuple(sorted({one.name for one in saves.head}))
            why = f"{saves.missing[0]} is not there yet" if saves.missing else main[0].name
            yield StoredStep(number or 0, main[0].name, not saves.missing, why, names)
        for older, ones in reversed(saves.older):
            if ones[0].kind is not Kind.TIME:
                names = tuple(sorted(one.name for one in ones))
                yield StoredStep(older, ones[0].name, True, ones[0].name, names)

    def _enters(self, root: Path, folder: Path) -> bool:
        if folder.is_symlink() or not folder.is_dir():
            return False
        return not self._claimed(folder.relative_to(root).as_posix())

    def _walk(self, root: Path, folder: Path, depth: int) -> Iterator[Path]:
        count = 0
        for path in entries(folder):
            if _UNFINISHED.search(path.name.lower()):
                continue
            if path.is_file():
                yield path
            elif depth < DEEPEST and self._enters(root, path):
                yield from self._walk(root, path, depth + 1)
            count += 1
            if count > MOST_FILES:
                return


def among(names: Iterable[str], is_small: Callable[[str], bool]) -> Iterator[Found]:
    """
    Yield the files that are saves, and those beside them without which a program may not resume.
    """
    names = list(names)
    folders: Set[str] = set()
    beside = []
    for name in names:
        step_folder = _step_folder(name)
        base = _base(name)
        if step_folder:
            beside.append((name, step_folder))
            if save_like(base):
                folders.add(step_folder)
        elif save_like(base):
            folders.add(name[: -len(base)])
            yield _found(name)
        elif name.lower().endswith(_SIDE):
            beside.append((name, ""))
    for name, step_folder in beside:
        base = _base(name)
        if step_folder in folders and step_folder:
            above, _, last = step_folder.rstrip("/").rpartition("/")
            number = int(re.findall(r"\d+", last)[-1])
            kind = Kind.EPOCH if "ep" in last.lower() else Kind.STEP
            series = f"{above}/{re.sub(r'[0-9]+', '#', last)}/{name[len(step_folder) :]}"
            yield Found(name, series, number, kind, in_folder=True)
        elif not step_folder and name[: -len(base)] in folders and _belongs(base) and is_small(name):
            yield _found(name)


def replaced_in_place(names: Iterable[str]) -> bool:
    """
    Say whether one of these files is a save that has no number: the next save has the same name.
    """
    return any(one.number is None and save_like(_base(one.name)) for one in among(names, lambda _name: True))


def _base(name: str) -> str:
    return name.rsplit("/", 1)[-1]


def _belongs(base: str) -> bool:
    return numbered(base) is not None or not _LOG.search(base.lower())


def main_of(saves: Saves) -> str:
    """
    Return the file that most likely holds the state; a folder where the save is one.
    """
    if saves.newest and saves.newest[0].in_folder:
        parts = saves.newest[0].name.split("/")
        return next("/".join(parts[: n + 1]) for n, part in enumerate(parts) if _is_step_folder(part))

    def rank(one: Found) -> Tuple[bool, bool, bool, bool, str]:
        base = _base(one.name).lower()
        return (
            not save_like(base), _BESIDE.search(base) is not None, one not in saves.newest,
            _CURRENT.search(base) is None, one.name,
        )  # fmt: skip

    return min(saves.head, key=rank).name


def _found(name: str) -> Found:
    folder, _, base = name.rpartition("/")
    number = numbered(base)
    if number is None:
        return Found(name, name)
    return Found(name, f"{folder}/{number.series}", number.number, number.kind)


def _step_folder(name: str) -> str:
    """
    Return the folder in a file's name that is a step's, with a slash at its end; empty for none.
    """
    parts = name.split("/")[:-1]
    for count, part in enumerate(parts):
        if _is_step_folder(part):
            return "/".join(parts[: count + 1]) + "/"
    return ""


def _is_step_folder(name: str) -> bool:
    return _STEP_FOLDER.fullmatch(name.lower()) is not None or save_folder_like(name)


def _step(root: Path, saves: Saves) -> Optional[int]:
    """
    Return the step of the newest save: by its names, and by what is in the files that are replaced in place.
    """
    steps: List[int] = []
    epochs: List[int] = []
    for one in saves.head:
        if not save_like(_base(one.name)) and not one.name.endswith(".json"):
            continue
        if one.number is None:
            told = told_by(root / one.name)
            steps += [] if told.step is None else [told.step]
            epochs += [] if told.epoch is None else [told.epoch]
        elif one in saves.newest:
            inside = told_by(root / one.name).step if one.kind in (Kind.EPOCH, Kind.TIME) else None
            if inside is not None:
                steps.append(inside)
            elif one.kind is Kind.STEP or one.kind is Kind.PLAIN:
                steps.append(one.number)
            elif one.kind is Kind.EPOCH:
                epochs.append(one.number)
    return max(steps or epochs, default=None)


def _is_small(path: Path) -> bool:
    try:
        return path.stat().st_size <= _LARGEST_SIDE
    except OSError:
        return False
