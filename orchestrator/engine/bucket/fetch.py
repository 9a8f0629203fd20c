"""Download a checkpoint or uncommitted files from the bucket: complete and verified, or not at all."""

import json
import os
import shutil
import stat
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath

from orchestrator import threads
from orchestrator.contract.bucket.manifest import folder_name
from orchestrator.contract.bucket.object_names import CHECKPOINTS, FETCHED
from orchestrator.contract.file_checksum import sha256_of
from orchestrator.domain.bucket_checkpoint import BucketCheckpoint
from orchestrator.domain.ports import Store
from orchestrator.engine.bucket.checkpoints import PARALLEL
from orchestrator.errors import NotFoundError, TransientError, UsageError

PART = ".part"
"""Suffix of the folder that is being filled; it stays after an interrupt, and the next fetch resumes in it."""


@dataclass(frozen=True)
class Download:
    """
    A download: *files* by object name, each with its sha256 (empty: none recorded) and target path.

    *what* names it for people (*several* says that this is a plural), *details* is stored beside the files,
    *again* says what to do if it is damaged.
    """

    what: str
    size: int
    files: tuple[tuple[str, str, str], ...]
    details: dict[str, object]
    again: str
    several: bool = False

    @property
    def verb(self) -> str:
        """Return what follows *what* in a sentence: "is" or "are"."""
        return "are" if self.several else "is"

    @property
    def checked(self) -> bool:
        """Return whether every file has a sha256."""
        return bool(self.files) and all(digest for _, digest, _ in self.files)


class _GrownError(Exception):
    """Signal that a download is longer than its listed size."""


class _Room:
    """Limit all downloads to the size that the disk was checked for: a machine may replace a listed object."""

    def __init__(self, size: int) -> None:
        self._remaining = size
        self._lock = threading.Lock()

    def take(self, size: int) -> None:
        """Count *size* bytes. Raise _GrownError if that is more than remains."""
        with self._lock:
            self._remaining -= size
            if self._remaining < 0:
                raise _GrownError


def newest(found: list[BucketCheckpoint], step: int | None) -> BucketCheckpoint:
    """Return the newest complete checkpoint, or that of *step*; raise NotFoundError if there is none."""
    whole = [one for one in found if one.complete and step in {None, one.step}]
    if whole:
        return whole[0]
    which = "there is no complete checkpoint" + ("" if step is None else f" of step {step}")
    raise NotFoundError(which, hint="see: tpuctl checkpoints", changed="nothing was written")


def download_of(one: BucketCheckpoint) -> Download:
    """Return the download for a checkpoint. Raise UsageError if an object name leads out of the folder."""
    digests = dict(one.objects)
    return Download(
        what=f"step {one.step}",
        size=one.size,
        files=tuple((name, digests[name], path) for name, path in paths_of(one).items()),
        details={"step": one.step, "incarnation": one.incarnation, "saved_at": one.saved_at},
        again="`tpuctl checkpoints list --verify` names those that are whole: tpuctl checkpoints fetch --step N",
    )


def fetch(store: Store, one: Download, folder: Path, report: Callable[[str], None]) -> None:
    """
    Copy the files of *one* into *folder*, which appears only when all files are complete and verified.

    *report* is called with the name of each file. Raise TransientError if the bytes are not those that were
    saved.
    """
    part = check_folder(folder, one)
    _check_room(one, folder, part)
    try:
        damage = _copies(store, one, folder, part, report)
        if damage:
            # Start from nothing next time: a resume would keep the damaged file.
            shutil.rmtree(part)
        else:
            _drop_foreign(part, {part / path for path in (*(file[2] for file in one.files), FETCHED)})
            # The rename is last, so *folder* holds verified files only. Other users get access only now: they could
            # have replaced a file while it was verified.
            part.chmod(0o777 & ~_umask())
            part.rename(folder)
    except OSError as error:
        raise UsageError(
            f"{error.filename or part} cannot be written: {error.strerror}",
            hint="name another folder with --output", changed=f"{folder} was not written",
        ) from error  # fmt: skip
    if damage:
        raise TransientError(
            f"{one.what}: not as saved: {damage[0]}", code="TPU-403", hint=one.again,
            changed="nothing was written",
        )  # fmt: skip


def _copies(
    store: Store, one: Download, folder: Path, part: Path, report: Callable[[str], None]
) -> list[str]:
    """Download all files in parallel; return a line for each damaged one. Files of an earlier try are kept."""
    room = _Room(one.size)
    # A checkpoint is often one large file, so few files are downloaded in several streams each.
    streams = max(1, PARALLEL // max(1, len(one.files)))

    def copy(file: tuple[str, str, str]) -> str:
        name, wanted, relative = file
        path = part / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        complete = bool(wanted) and path.is_file() and sha256_of(path) == wanted
        try:
            found = wanted if complete else store.download(name, path, room.take, streams)
        except _GrownError:
            return f"{name} is larger than when the bucket was listed"
        report(relative)
        if found is None:
            return f"{name} is missing"
        return "" if wanted in {"", found} else f"{name} has another sha256 than its manifest says"

    part.parent.mkdir(parents=True, exist_ok=True)
    # Mode 0700 until complete: a planted link could redirect a download to another file.
    part.mkdir(mode=0o700, exist_ok=True)
    # In a shared folder another user may have created it first.
    check_folder(folder, one)
    (part / FETCHED).write_text(json.dumps(one.details) + "\n")
    pool = threads.pool(PARALLEL)
    try:
        return [text for text in pool.map(copy, one.files) if text]
    finally:
        # After Ctrl-C no further file is started: a checkpoint may have thousands.
        pool.shutdown(cancel_futures=True)


def _drop_foreign(part: Path, ours: set[Path]) -> None:
    """Delete the files that an earlier try for another step has left in *part*."""
    for path in part.rglob("*"):
        if path.is_file() and path not in ours:
            path.unlink()


def paths_of(one: BucketCheckpoint) -> dict[str, str]:
    """Return the target path of each object; with several workers each one has its own folder."""
    # Some programs write an empty object to stand for a folder.
    names = [name for name, _ in one.objects if not name.endswith("/")]
    if one.incarnation is not None:
        start = folder_name(one.step, one.incarnation) + ("w0/" if one.workers == 1 else "")
    else:
        first = {name.removeprefix(CHECKPOINTS).partition("/")[0] for name in names}
        alone = len(first) == 1 and all("/" in name.removeprefix(CHECKPOINTS) for name in names)
        start = CHECKPOINTS + (f"{first.pop()}/" if alone else "")
    return {name: inside(name.removeprefix(start)) for name in names}


def inside(path: str) -> str:
    """Return *place*; raise UsageError if it is absolute or leads out of the folder."""
    parts = path.split("/")
    if PurePosixPath(path).is_absolute() or any(part in {"", ".", ".."} or "\0" in part for part in parts):
        raise UsageError(
            f"the bucket holds an object whose name is not a file's: {path!r}",
            hint="delete it, or copy the others with: gcloud storage cp", changed="nothing was written",
        )  # fmt: skip
    return path


def check_folder(folder: Path, one: Download) -> Path:
    """Return where to fill *folder*. Raise UsageError if it exists, or if that is not this user's earlier fetch."""
    part = folder.with_name(folder.name + PART)
    foreign = os.path.lexists(part) and not _is_ours(part)
    if not foreign and _holds(folder, one):
        raise UsageError(
            f"{folder} holds this already: {one.what}{_saved(one)}",
            hint="use what is there, or name another folder with --output", changed="nothing was written",
            code="TPU-114",
        )  # fmt: skip
    if os.path.lexists(folder) or foreign:
        raise UsageError(
            f"{part if foreign else folder} is there already", hint="name another folder with --output",
            changed="nothing was written", code="TPU-114",
        )  # fmt: skip
    return part


def _holds(folder: Path, one: Download) -> bool:
    """Return whether an earlier fetch of the same files has made *folder*, and none of them was deleted since."""
    try:
        details = json.loads((folder / FETCHED).read_text())
    except (OSError, ValueError, RecursionError):
        return False
    return (
        bool(one.details)
        and details == one.details
        and all((folder / path).is_file() for _, _, path in one.files)
    )


def _saved(one: Download) -> str:
    """Return when it was saved, "" if nothing says so."""
    at = one.details.get("saved_at")
    return (
        f", saved {datetime.fromtimestamp(at, timezone.utc):%Y-%m-%d %H:%M UTC}"
        if isinstance(at, float)
        else ""
    )


def _is_ours(part: Path) -> bool:
    """Return whether *part* is a folder that only this user can write to, without links."""
    found = part.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & stat.S_IWOTH:
        return False
    inside = [path.lstat() for path in part.rglob("*")]
    plain = all(
        stat.S_ISDIR(one.st_mode) or (stat.S_ISREG(one.st_mode) and one.st_nlink == 1) for one in inside
    )
    return plain and (not inside or (part / FETCHED).is_file())


def _umask() -> int:
    # The umask can only be read by setting it. For that moment other threads create files with a stricter mode,
    # never with a wider one.
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _check_room(one: Download, folder: Path, part: Path) -> None:
    """Raise UsageError if the disk has too little room for the download."""
    above = next(one for one in folder.absolute().parents if one.is_dir())
    there = sum(file.stat().st_size for file in part.rglob("*") if file.is_file()) if part.exists() else 0
    free = shutil.disk_usage(above).free + there
    if one.size > free:
        raise UsageError(
            f"{one.what}: {one.size / 1e9:.1f} GB, but {above} has room for {free / 1e9:.1f} GB",
            hint="name a folder on another disk with --output", changed="nothing was written",
        )  # fmt: skip
