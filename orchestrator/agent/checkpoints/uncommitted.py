"""Find files on this machine's disk that the job has saved and no checkpoint contains."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Iterator, List, Optional, Set, Tuple

from orchestrator.agent.checkpoints.local_checkpoints import RESTORING, LocalCheckpoints
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.cloud.transport import seconds_of
from orchestrator.agent.settings import Settings
from orchestrator.contract.bucket.object_names import OURS
from orchestrator.contract.bucket.uncommitted_manifest import FolderKind, Skip, Skipped
from orchestrator.contract.formats.reading.save_like import (
    LARGE,
    checkpoint_like,
    is_log,
    maybe_save,
    save_folder_like,
    save_like,
)

MAX_FILES = 20000
"""Limit for the files to upload, and for the entries examined outside of the checkpoint folder."""
MAX_NAME = 900
"""Bytes of a name; the bucket allows 1024 with the prefix."""
EARLIER = 1.0
"""Seconds by which a file may seem older than the job that wrote it, as file system clocks are coarse."""
_FOREIGN = frozenset({"__pycache__", "node_modules", "site-packages", "venv", "lost+found"})


@dataclass(frozen=True)
class FoundFile:
    """A file that no checkpoint contains: its kind of folder, its path below that, and its modification time."""

    kind: FolderKind
    relative: str
    path: Path
    modified: int

    @property
    def name(self) -> str:
        """Return the file's name in the bucket."""
        return f"{self.kind.value}/{self.relative}"

    @property
    def save_like(self) -> bool:
        """Return whether its name looks like a save's."""
        return save_like(self.path.name)

    @property
    def likely(self) -> bool:
        """Return whether it may hold trained weights, by name and size; less strict where saves belong."""
        try:
            size = self.path.stat().st_size
        except OSError:
            return False
        name, apart = self.path.name, self.kind in (FolderKind.HOME, FolderKind.QUARANTINE)
        belongs = self.kind is FolderKind.CHECKPOINTS and size > LARGE and not is_log(name)
        return self.save_like or belongs or (not apart and (checkpoint_like(name) or maybe_save(name, size)))


FoundFiles = Tuple[List[FoundFile], List[Skipped]]


def find_uncommitted(
    settings: Settings, local: LocalCheckpoints, committed: Optional[int], since: float, home: str
) -> FoundFiles:
    """
    Return the files that no commit contains, newest first, and those that cannot be uploaded. Raise OSError.

    In the checkpoint folder that is everything but steps up to *committed*; in the source folder and *home*
    it is files that look like a save and are newer than *since*. If nothing is committed, the quarantine
    counts too.
    """
    found: List[FoundFile] = []
    skipped: List[Skipped] = []
    for kind, root, wanted, barred in _roots(settings, local, committed, since, home):
        for one in _walk(kind, root, wanted, barred, bounded=kind in (FolderKind.WORK, FolderKind.HOME)):
            if isinstance(one, FoundFile):
                found.append(one)
            else:
                skipped.append(one)
    found.sort(key=lambda one: (-one.modified, one.name))
    skipped += [Skipped(one.name, Skip.TOO_MANY) for one in found[MAX_FILES:]]
    return found[:MAX_FILES], skipped[:MAX_FILES]


_Wanted = Callable[[str, os.stat_result], bool]


def _roots(
    settings: Settings, local: LocalCheckpoints, committed: Optional[int], since: float, home: str
) -> Iterator[Tuple[FolderKind, Path, _Wanted, Set[Path]]]:
    """Yield each folder to search, a test for its files, and the folders below it to skip."""
    layout = settings.layout
    ours = {layout.bundles, layout.quarantine, layout.log.parent, layout.status.parent}
    barred: Set[Path] = set()
    if not settings.checkpoints.in_bucket:
        in_commit = _committed(local, committed)
        yield FolderKind.CHECKPOINTS, local.folder, lambda name, _: not in_commit(name), set()
        barred.add(_real(local.folder))
    if committed is None:
        yield FolderKind.QUARANTINE, layout.quarantine, lambda _name, _state: True, set()

    def a_save(name: str, state: os.stat_result) -> bool:
        *folders, last = name.split("/")
        known = save_like(last) or any(map(save_folder_like, folders))
        return state.st_mtime >= since - EARLIER and known

    def maybe_a_save(name: str, state: os.stat_result) -> bool:
        # Once the bucket has a checkpoint, guesses in the source folder are not worth uploading.
        last = name.rpartition("/")[2]
        guess = committed is None and state.st_mtime >= since - EARLIER
        return a_save(name, state) or (guess and (checkpoint_like(last) or _is_model(last, state.st_size)))

    work = _real(layout.current)
    if since:
        yield FolderKind.WORK, work, maybe_a_save, barred
    if since and home:
        yield FolderKind.HOME, _real(Path(home)), a_save, {_real(one) for one in ours} | barred


def _is_model(name: str, size: int) -> bool:
    """Return whether a text file in the source folder may be a model, such as xgboost's `model.json`."""
    return size > LARGE and name.lower().endswith((".json", ".txt")) and maybe_save(name, size)


def _committed(local: LocalCheckpoints, committed: Optional[int]) -> Callable[[str], bool]:
    """Return a test for paths in the checkpoint folder: whether they belong to a committed or older save."""
    if committed is None:
        return lambda name: name.startswith(RESTORING)
    if local.format.at_end:
        return lambda _name: True
    folders, names = [RESTORING], set(local.format.pointers)
    for one in local.checkpoints():
        if one.complete and one.step <= committed:
            start = "" if one.save.folder == "." else f"{one.save.folder}/"
            if one.save.files is None:
                folders.append(start)
            else:
                names |= {start + name for name in one.save.files}
    begins = tuple(folders)
    return lambda name: name in names or name.startswith(begins)


def _walk(
    kind: FolderKind, root: Path, wanted: _Wanted, barred: Set[Path], *, bounded: bool
) -> Iterator["FoundFile | Skipped"]:
    """
    Yield the wanted files below *root*; links are listed, never followed.

    *bounded* is for folders that are not the job's alone: hidden folders and those of tools are skipped.
    """
    count = 0
    for base, folders, names in os.walk(str(root)):
        here = Path(base)
        if bounded:
            # Changed in place, since os.walk descends into what remains in this list.
            folders[:] = [
                one for one in folders
                if not one.startswith(".") and one not in _FOREIGN and here / one not in barred
            ]  # fmt: skip
        links = [one for one in folders if (here / one).is_symlink()]
        for name in sorted([*names, *links]):
            count += 1
            if bounded and count > MAX_FILES:
                return
            one = _judged(kind, root, here / name, wanted)
            # In a folder that is not the job's alone, files that cannot be uploaded are not reported.
            if one is not None and (isinstance(one, FoundFile) or not bounded):
                yield one


def _judged(kind: FolderKind, root: Path, path: Path, wanted: _Wanted) -> "FoundFile | Skipped | None":
    relative = path.relative_to(root).as_posix()
    name = f"{kind.value}/{relative}"
    try:
        # lstat: a link may lead to the whole disk.
        state = path.lstat()
    except OSError:
        return None  # The job has deleted it meanwhile.
    try:
        # A file name is bytes, but the bucket's API requires valid Unicode.
        written = name.encode()
    except UnicodeEncodeError:
        return Skipped(name.encode("utf-8", "backslashreplace").decode(), Skip.NAME)
    if not wanted(relative, state):
        return None
    if len(written) > MAX_NAME or any(sign in name for sign in "\r\n\0"):
        return Skipped(name[:MAX_NAME], Skip.NAME)
    if stat.S_ISLNK(state.st_mode):
        return Skipped(name, Skip.SYMLINK)
    if not stat.S_ISREG(state.st_mode):
        return Skipped(name, Skip.SPECIAL)
    return FoundFile(kind, relative, path, state.st_mtime_ns)


def _real(path: Path) -> Path:
    return Path(os.path.realpath(str(path)))


BUCKET = "bucket"
MAX_FOLDERS = 10


def stray_in(bucket: JobBucket, since: float) -> str:
    """
    Return the newest object that looks like a save of this job in an unexpected place of the bucket.

    Only objects written after *since*, in the first page of a folder, are found.
    """
    found: List[Tuple[str, str]] = []
    _items, folders = bucket.first_page("", deep=False)
    for folder in [one for one in folders if one not in OURS][:MAX_FOLDERS]:
        for item in bucket.first_page(folder, deep=True)[0]:
            name = str(item["name"])
            if since and seconds_of(str(item["updated"])) >= since - 1 and _is_save(name):
                found.append((str(item["updated"]), name))
    return max(found, default=("", ""))[1]


def _is_save(name: str) -> bool:
    *folders, last = name.split("/")
    return save_like(last) or any(map(save_folder_like, folders))
