"""Find the newest save among a folder's files, by names, sizes and times. Pure."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Set, Tuple

from orchestrator.contract.formats.reading.numbered_names import TIME, VERSION, NameKind, numbered
from orchestrator.contract.formats.reading.save_like import (
    checkpoint_like,
    is_log,
    maybe_save,
    save_folder_like,
)

_EPOCHS = 10**12
POINTER = 4096
"""Largest size in bytes of a file that may name the newest save (`latest`, `last_checkpoint`)."""
About = Callable[[str], Tuple[int, float]]
"""Function from a file name to its size in bytes and modification time in seconds."""
_MOST_OLDER = 1_000_000
"""Most file names in all older saves together; a file that belongs to several saves counts in each."""
_LARGEST_SIDE = 64 << 20
"""In bytes; tokenizers of large vocabularies take 33 MB as JSON."""
_STEP_FOLDER = re.compile(r"\d+|(?:global_?step|iter|iteration|update)s?[-_.=]?\d+")
_BESIDE = re.compile(r"optim|pdopt|sched|meta|rng|random|scaler|args|config|best|ema|token|vocab|loader")
_CURRENT = re.compile(r"last|latest|ckpt|checkpoint|snapshot|state|model")


@dataclass(frozen=True)
class Found:
    """
    A file that a program saved: its number, what that counts, and its series.

    *side* says that it only lies beside saves. *at* is its modification time in seconds.
    """

    name: str
    series: str
    number: Optional[int] = None
    kind: NameKind = NameKind.PLAIN
    in_folder: bool = False
    side: bool = False
    epoch: Optional[int] = None
    at: float = 0.0


@dataclass(frozen=True)
class Saves:
    """
    The files of the newest save, which of them are numbered, and the files of older saves by number.

    *missing* are series that have had the newest number in each save so far, and lack it now.
    """

    head: Tuple[Found, ...]
    newest: Tuple[Found, ...]
    older: Tuple[Tuple[int, Tuple[Found, ...]], ...]
    missing: Tuple[str, ...]


_Series = Dict[int, List[Found]]
"""The files of one series by number."""


def group(found: Sequence[Found]) -> Saves:
    """Return which files make the newest save. Pure."""
    series: Dict[str, _Series] = {}
    found = _in_order(found)
    for one in found:
        if one.number is not None:
            series.setdefault(one.series, {}).setdefault(one.number, []).append(one)
    top = max((number for held in series.values() for number in held), default=-1)
    head = [one for one in found if one.number is None]
    newest: List[Found] = []
    missing, over = [], []
    gone_on, leaders = _gone_on(series), _Leaders([held for held in series.values() if top in held], top)
    for name, held in series.items():
        if name in gone_on:
            continue
        last = max(held)
        head += held[last]
        if last == top:
            newest += held[last]
        # Saved together with the newest: its file of that number is late, or its part of the job has ended.
        elif leaders.are_with(held):
            if leaders.are_ahead(last, held[last]):
                over += held[last]
            else:
                missing.append(name)
    chosen = {one.name for one in head}
    older: Dict[int, List[Found]] = {}
    for one in found:
        if one.number is not None and one.name not in chosen:
            older.setdefault(one.number, []).append(one)
    # Bounded: many files that belong to every save would fill the memory with names alone.
    retained = sorted(older.items())[-max(2, _MOST_OLDER // (1 + len(over))) :]
    by_number = tuple((number, (*ones, *over)) for number, ones in retained)
    return Saves(tuple(head), tuple(newest), by_number, tuple(missing))


def _gone_on(series: Mapping[str, _Series]) -> Set[str]:
    """
    Return the series that the same program has continued after a restart, in a folder with another date.

    Without this each restart would add one more save to all later commits.
    """
    alike: Dict[str, List[str]] = {}
    for name in series:
        alike.setdefault(TIME.sub("", name), []).append(name)
    found: Set[str] = set()
    for names in alike.values():
        begun = sorted(
            (min(held), min(one.at for one in held[min(held)])) for held in map(series.get, names) if held
        )
        firsts = [first for first, _at in begun]
        youngest = list(accumulate((at for _first, at in reversed(begun)), max))[::-1]
        for name in names:
            last = max(series[name])
            later = bisect_right(firsts, last)
            at = max(one.at for one in series[name][last])
            if TIME.search(name) and later < len(firsts) and youngest[later] > at:
                found.add(name)
    return found


class _Leaders:
    """The series that have the newest number, so that a query costs little however many there are."""

    def __init__(self, leaders: List[_Series], top: int) -> None:
        self._at: Dict[int, float] = {}
        for leader in leaders:
            at = max(one.at for one in leader[top])
            for number in leader:
                self._at[number] = max(at, self._at.get(number, at))
        self._leaders = sorted(((_second(one), one) for one in leaders), key=lambda pair: pair[0])

    def are_with(self, held: _Series) -> bool:
        """Return whether a series was saved together with a leader and is older: of the same part of the job."""
        late = max(one.at for one in held[max(held)])
        return any(late <= self._at[number] for number in held if number in self._at)

    def are_ahead(self, last: int, held: Sequence[Found]) -> bool:
        """
        Return whether a series belongs to an ended part of the job, so that no file of it is to come.

        A series that is saved together with a leader lacks at most its newest number, and its own last file
        is younger than those with smaller numbers.
        """
        at = max(one.at for one in held)
        for second, leader in self._leaders:
            if second > last:
                return True  # Two numbers ahead, and so are all later ones.
            if not any(number < last and min(one.at for one in ones) > at for number, ones in leader.items()):
                return False
        return True


def _second(held: _Series) -> int:
    return sorted(held)[-2] if len(held) > 1 else -1


def _in_order(found: Sequence[Found]) -> Sequence[Found]:
    """Order saves by epoch first if steps restart with each epoch; then no name gives the step."""
    restarted = set()
    held: Dict[str, List[Tuple[int, int]]] = {}
    for one in found:
        if one.epoch is not None and one.number is not None:
            held.setdefault(one.series, []).append((one.epoch, one.number))
    for series, pairs in held.items():
        pairs.sort()
        order = sorted(pairs, key=lambda pair: (pair[1], pair[0]))
        if pairs != order or len({step for _epoch, step in pairs}) < len(set(pairs)):
            restarted.add(series)
    return [
        replace(one, number=one.epoch * _EPOCHS + one.number, kind=NameKind.TIME)
        if one.series in restarted and one.epoch is not None and one.number is not None
        else one
        for one in found
    ]


def among(names: Iterable[str], about: About) -> Iterator[Found]:
    """Yield the saves, and the files beside them that a program may need to resume."""
    # The iterator is needed twice.
    names = list(names)
    saves = {name for name in names if checkpoint_like(base_of(name))}
    known = bool(saves)
    if not known:
        saves = {name for name in names if maybe_save(base_of(name), about(name)[0])}
    above: Set[str] = {""} if saves else set()
    folders: Set[str] = set()
    for name in saves:
        step_folder = step_folder_of(name)
        folders |= {step_folder} if step_folder else set()
        parts = (step_folder.rstrip("/") or name).split("/")[:-1]
        above |= {"/".join(parts[: n + 1]) + "/" for n in range(len(parts))}
    for name in names:
        step_folder, base = step_folder_of(name), base_of(name)
        size, at = about(name)
        if step_folder:
            if step_folder in folders:
                yield _in_folder(name, step_folder, at, side=name not in saves)
        elif name in saves:
            yield _found(name, at)
        elif _is_beside(name[: -len(base)], above, known) and size <= _LARGEST_SIDE and _belongs(base):
            yield _found(name, at, side=True)


def _is_beside(folder: str, above: Set[str], known: bool) -> bool:
    """Return whether a folder holds saves, or folders of saves; in an unknown layout all below belongs to it."""
    parts = folder.split("/")[:-1]
    inside = any("/".join(parts[: n + 1]) + "/" in above for n in range(len(parts)))
    return folder in above or (not known and inside)


def is_save(name: str, size: int) -> bool:
    """Return whether a file of a commit is a save and not a side file."""
    base = base_of(name)
    return checkpoint_like(base) or maybe_save(base, size) or step_folder_of(name) != ""


def replaced_in_place(names: Iterable[str]) -> bool:
    """Return whether one of these files is a save without a number, which the next save overwrites."""
    return any(one.number is None and not one.side for one in among(names, unknown))


def base_of(name: str) -> str:
    """Return a name without its folders."""
    return name.rsplit("/", 1)[-1]


def _belongs(base: str) -> bool:
    return numbered(base) is not None or not is_log(base)


def main_of(saves: Saves) -> str:
    """Return the file that most likely holds the state, or the folder if the save is one."""
    if saves.newest and saves.newest[0].in_folder:
        parts = saves.newest[0].name.split("/")
        return next("/".join(parts[: n + 1]) for n, part in enumerate(parts) if _is_step_folder(part))

    def rank(one: Found) -> Tuple[bool, bool, bool, bool, str, float, str]:
        base = base_of(one.name).lower()
        # Lightning resumes from `last.ckpt` and saves to `last-v1.ckpt` from then on.
        same = VERSION.sub("", one.name)
        return (
            one.side, _BESIDE.search(base) is not None, one not in saves.newest,
            _CURRENT.search(base) is None, same, -one.at, one.name,
        )  # fmt: skip

    return min(saves.head, key=rank).name


def _found(name: str, at: float, *, side: bool = False) -> Found:
    folder, _, base = name.rpartition("/")
    number = numbered(base)
    if number is None:
        return Found(name, name, side=side, at=at)
    series = f"{folder}/{number.series}"
    return Found(name, series, number.number, number.kind, side=side, epoch=number.epoch, at=at)


def _in_folder(name: str, step_folder: str, at: float, *, side: bool) -> Found:
    above, _, last = step_folder.rstrip("/").rpartition("/")
    number = int(re.findall(r"\d+", last)[-1])
    kind = NameKind.EPOCH if "ep" in last.lower() else NameKind.STEP
    series = f"{above}/{re.sub(r'[0-9]+', '#', last)}/{name[len(step_folder) :]}"
    return Found(name, series, number, kind, in_folder=True, side=side, at=at)


def step_folder_of(name: str) -> str:
    """Return the step folder in a file's path, with a slash at its end; empty for none."""
    parts = name.split("/")[:-1]
    for count, part in enumerate(parts):
        if _is_step_folder(part):
            return "/".join(parts[: count + 1]) + "/"
    return ""


def _is_step_folder(name: str) -> bool:
    return _STEP_FOLDER.fullmatch(name.lower()) is not None or save_folder_like(name)


def unknown(_name: str) -> Tuple[int, float]:
    """Return size and time for a file of which only the name is known."""
    return POINTER, 0.0
