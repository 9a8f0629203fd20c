"""
Define what a format of checkpoints must know: which files make one save, and whether they are whole.

The facts about the frameworks (write order, damage by a kill) were measured on real runs of the versions that
each file names.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, FrozenSet, Iterator, List, Optional, Tuple

from orchestrator.contract.preemption_notice import JOB_SAVES

_RANDOM = re.compile(r"rng_state_[1-9]\d*\.pth|random_states_[1-9]\d*\.pkl")
"""Random state of a process that saves nothing else (Trainer, accelerate)."""


class SaveState(enum.Enum):
    """
    Judge a save on disk. Only a COMPLETE one is ever committed or resumed from.

    NOT_RESUMABLE is whole, but lacks what a resume needs; it stays where it is.
    """

    COMPLETE = "complete"
    TORN = "torn"
    UNFINISHED = "unfinished"
    NOT_RESUMABLE = "not resumable"


@dataclass(frozen=True)
class LocalSave:
    """
    The files of one save, relative to the folder of all checkpoints.

    *folder* is `.` if the files lie beside those of other saves. *files* are relative to it; None means
    everything below it. Of two saves of one step the higher *rank* is preferred. The files of a *live* save
    may be replaced at any moment, so it is committed from a copy, and only its content may tell its step. A
    *leans* save is whole, but the program also keeps files that it replaces in place (`last.ckpt`), which
    belong to a later save by now.
    """

    step: int
    name: str
    folder: str = "."
    files: Optional[Tuple[str, ...]] = None
    rank: int = 0
    live: bool = False
    leans: bool = False

    def holds(self, name: str) -> bool:
        """Return whether a file, relative to the folder of all checkpoints, belongs to the save."""
        start = "" if self.folder == "." else f"{self.folder}/"
        if self.files is None:
            return name.startswith(start)
        return name.startswith(start) and name[len(start) :] in self.files


UNKNOWN = -1
"""Step of a save whose name shows none."""
QUIET = 1
PATIENT = 3
LONG = 24
"""Number of checks without a change after which a save counts as finished, if no file of it is known to be last."""


@dataclass(frozen=True)
class SaveVerdict:
    """
    Judge a save and say why; *step* is set only if the content tells it.

    A complete one with *rest* counts after its files have not changed for that many checks. *checked* says that
    its bytes agree with checksums in the files themselves, so it is no mixture of two saves of one file.
    """

    state: SaveState
    message: str = ""
    step: Optional[int] = None
    rest: int = 0
    checked: bool = False


@dataclass(frozen=True)
class Listing:
    """
    Show one level of the bucket: objects and folders by name, and functions to read more.

    Folder names end with a slash. *below* returns the level of one of them.
    """

    names: Tuple[str, ...]
    folders: Tuple[str, ...]
    has: Callable[[str], bool]
    read: Callable[[str], Optional[bytes]]
    below: Callable[[str], Listing] = lambda _folder: nothing()


@dataclass(frozen=True)
class BucketSave:
    """
    A save that the job wrote to the bucket itself; *message* says what makes it complete, or what is missing.

    *name* is a folder, an object or a common prefix of several; *objects* names them in the last case.
    """

    step: int
    name: str
    complete: bool
    message: str
    objects: Tuple[str, ...] = ()


def nothing() -> Listing:
    """Return a level without objects."""
    return Listing((), (), lambda _name: False, lambda _name: None)


def complete(step: Optional[int] = None, rest: int = 0, *, checked: bool = False) -> SaveVerdict:
    """Return the verdict COMPLETE."""
    return SaveVerdict(SaveState.COMPLETE, "", step, rest, checked)


def torn(message: str) -> SaveVerdict:
    """Return the verdict on a save with a damaged file."""
    return SaveVerdict(SaveState.TORN, message)


def unfinished(message: str) -> SaveVerdict:
    """Return the verdict on a save whose last file is missing."""
    return SaveVerdict(SaveState.UNFINISHED, message)


class Format:
    """How one framework lays out its checkpoints. Subclasses override what differs."""

    name = ""
    may_change = False
    """True for `auto`, which chooses a format once it has seen a save."""
    wants = ""
    """What a finished save looks like: the end of the sentence `format NAME wants ...`."""
    grace = JOB_SAVES
    """Default seconds between the stop signal and the kill."""
    stopped_codes: FrozenSet[int] = frozenset()
    """Exit statuses with which the framework reports an orderly early stop."""
    zero_proves = True
    """Exit status 0 means finished, if no target step is known."""
    pointers: Tuple[str, ...] = ()
    """Files that affect every verdict."""
    at_end = False
    """Nothing is complete before the job has ended with status 0, so nothing is resumed from."""

    @property
    def chosen(self) -> str:
        """Return the name of the format in use, empty while `auto` has not chosen."""
        return self.name

    def continue_as(self, name: str, base: Optional[str] = None) -> None:
        """Continue in the format of the newest checkpoint, in folder *base*; only `auto` has a choice."""

    def owns(self, save: LocalSave) -> bool:
        """Return whether a save counts after all were judged; `auto` finds saves of several formats."""
        return True

    def find(self, root: Path) -> List[LocalSave]:
        """Return the saves by their names alone, without reading them. Raise OSError."""
        raise NotImplementedError

    def judge(self, root: Path, save: LocalSave) -> SaveVerdict:
        """Read and judge the files of a save. Raise OSError if one vanishes."""
        raise NotImplementedError

    def closes(self, name: str) -> bool:
        """Return whether this file makes its save complete, so that it must be uploaded last."""
        return False

    def follows(self, name: str) -> bool:
        """Return whether every machine writes such a file beside worker 0's save, which is valid without it."""
        return _RANDOM.fullmatch(name.rpartition("/")[2]) is not None

    def resume(self, root: str, save: LocalSave) -> str:
        """Return the path that the job is given to resume from."""
        first = save.files[0] if save.folder == "." and save.files else save.folder
        return f"{root.rstrip('/')}/{first}"

    def repair(self, root: Path, chosen: LocalSave) -> List[str]:
        """Make the framework choose *chosen* at its start; return what was changed. Raise OSError."""
        return []

    def target(self, root: Path, save: LocalSave) -> Optional[int]:
        """Return the last step of the training according to the checkpoint, None if unknown."""
        return None

    def stored(self, listing: Listing) -> Iterator[BucketSave]:
        """Yield the saves that the job wrote to the bucket itself, newest first."""
        return iter(())


def entries(root: Path) -> List[Path]:
    """Return the entries of a folder, sorted, without hidden ones: those are the agent's or the framework's."""
    try:
        return sorted(path for path in root.iterdir() if not path.name.startswith("."))
    # Most programs create their folder with the first save.
    except FileNotFoundError:
        return []
