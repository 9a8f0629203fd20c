"""
What a format of checkpoints has to know: which files make one step, and whether they are whole.

The facts of the frameworks (what they write in which order, what was torn by a kill) were measured on real
runs of the versions that each file names.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, FrozenSet, Iterator, List, Optional, Tuple

from orchestrator.contract.preemption_notice import JOB_SAVES

_RANDOM = re.compile(r"rng_state_[1-9]\d*\.pth|random_states_[1-9]\d*\.pkl")
"""Random numbers of a process that saves nothing else: the Trainer, accelerate."""


class SavedState(enum.Enum):
    """
    Name what a step on disk is worth. Only a complete one is ever committed or resumed from.

    NOT_RESUMABLE is whole, but the framework left out what a resume needs; it stays where it is.
    """

    COMPLETE = "complete"
    TORN = "torn"
    UNFINISHED = "unfinished"
    NOT_RESUMABLE = "not resumable"


@dataclass(frozen=True)
class Unit:
    """
    Name the files of one step, relative to the folder of all checkpoints.

    *folder* is `.` when the files lie beside those of other steps. *files* are relative to it; None means
    everything below it. Of two units of one step the higher *rank* is preferred. The files of a *live* one
    may be replaced at any moment, so it is committed from a copy; only its content may tell its step. One
    that *leans* is whole, but the program also keeps files that it replaces in place (`last.ckpt`), and those
    are of another step by now.
    """

    step: int
    name: str
    folder: str = "."
    files: Optional[Tuple[str, ...]] = None
    rank: int = 0
    live: bool = False
    leans: bool = False

    def holds(self, name: str) -> bool:
        """Say whether a file, named from the folder of all checkpoints, is part of it."""
        start = "" if self.folder == "." else f"{self.folder}/"
        if self.files is None:
            return name.startswith(start)
        return name.startswith(start) and name[len(start) :] in self.files


UNKNOWN = -1
"""The step of a unit that tells none."""
QUIET = 1
PATIENT = 3
LONG = 24
"""For how many looks a unit has to stay as it is, where nothing in it is written last."""


@dataclass(frozen=True)
class Judgement:
    """
    Hold what a unit is worth and why; *step* where only the content tells it.

    A complete one with *rest* counts when its files have stayed the same for so many looks.
    """

    state: SavedState
    why: str = ""
    step: Optional[int] = None
    rest: int = 0


@dataclass(frozen=True)
class Listing:
    """
    Show one level of the bucket: objects and folders by name, and ways to ask for more.

    Folders end with a slash. *below* shows the level of one of them.
    """

    names: Tuple[str, ...]
    folders: Tuple[str, ...]
    has: Callable[[str], bool]
    read: Callable[[str], Optional[bytes]]
    below: Callable[[str], Listing] = lambda _folder: nothing()


@dataclass(frozen=True)
class StoredStep:
    """
    Name a step that the job wrote to the bucket itself; *why* says what makes it complete, or what lacks.

    *name* is a folder, an object or the common start of several; *objects* names them where it is neither.
    """

    step: int
    name: str
    complete: bool
    why: str
    objects: Tuple[str, ...] = ()


def nothing() -> Listing:
    """Return a level without objects."""
    return Listing((), (), lambda _name: False, lambda _name: None)


def complete(step: Optional[int] = None, rest: int = 0) -> Judgement:
    """Return the judgement on a whole unit."""
    return Judgement(SavedState.COMPLETE, "", step, rest)


def torn(why: str) -> Judgement:
    """Return the judgement on a unit with a broken file."""
    return Judgement(SavedState.TORN, why)


def unfinished(why: str) -> Judgement:
    """Return the judgement on a unit whose last file is not there."""
    return Judgement(SavedState.UNFINISHED, why)


class Format:
    """Describe how one framework lays out its checkpoints. Subclasses override what differs."""

    name = ""
    may_change = False
    """True of `auto`, which chooses a format when it has seen a save."""
    wants = ""
    """What a finished save looks like: the end of the sentence `format NAME wants ...`."""
    grace = JOB_SAVES
    """Default seconds between the stop signal and the kill."""
    stopped_codes: FrozenSet[int] = frozenset()
    """Exit statuses by which the framework says that it stopped early and in good order."""
    zero_proves = True
    """Exit status 0 means finished, if no target step is known."""
    pointers: Tuple[str, ...] = ()
    """Files that every judgement depends on."""
    at_end = False
    """Nothing is complete before the job has ended with status 0, so that nothing is resumed from."""

    @property
    def chosen(self) -> str:
        """Return the name of the format in use, empty as long as `auto` has seen no save."""
        return self.name

    def continue_as(self, name: str, base: Optional[str] = None) -> None:
        """Go on with what the newest checkpoint was committed as, in folder *base*; only `auto` has a choice."""

    def owns(self, unit: Unit) -> bool:
        """Say whether a unit counts, now that all are judged; `auto` finds those of several formats."""
        return True

    def find(self, root: Path) -> List[Unit]:
        """Return the units by their names alone, whatever they are worth. Raises OSError."""
        raise NotImplementedError

    def judge(self, root: Path, unit: Unit) -> Judgement:
        """Read a unit's files and say what it is worth. Raises OSError when one vanishes."""
        raise NotImplementedError

    def closes(self, name: str) -> bool:
        """Say whether a file of a unit is the one that makes it complete, so that it is uploaded last."""
        return False

    def follows(self, name: str) -> bool:
        """Say whether each machine writes such a file beside the save of worker 0, which goes on without it."""
        return _RANDOM.fullmatch(name.rpartition("/")[2]) is not None

    def resume(self, root: str, unit: Unit) -> str:
        """Return what the job is given to resume from: a path."""
        first = unit.files[0] if unit.folder == "." and unit.files else unit.folder
        return f"{root.rstrip('/')}/{first}"

    def repair(self, root: Path, chosen: Unit) -> List[str]:
        """Make the framework choose *chosen* at its start; return what was changed. Raises OSError."""
        return []

    def target(self, root: Path, unit: Unit) -> Optional[int]:
        """Return the last step of the training as the checkpoint knows it."""
        return None

    def stored(self, listing: Listing) -> Iterator[StoredStep]:
        """Yield the steps that the job wrote to the bucket itself, newest first."""
        return iter(())


def entries(root: Path) -> List[Path]:
    """Return what lies in a folder, sorted; hidden names are the agent's or the framework's own."""
    try:
        return sorted(path for path in root.iterdir() if not path.name.startswith("."))
    # Most programs make their folder with the first save.
    except FileNotFoundError:
        return []
