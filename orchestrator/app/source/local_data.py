"""Upload the job's data from this computer to the bucket, each content once, named by its sha256."""

import base64
import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import google_crc32c

from orchestrator.app.source.patterns import named_like_a_key
from orchestrator.contract.bucket.object_names import DATA
from orchestrator.contract.replacing import replacing
from orchestrator.domain.ports import Store
from orchestrator.errors import UsageError
from orchestrator.private_folders import private_folder

MAX_FILES = 100_000
"""Limit for all data sets together: each file is an object and a line of the list that machines read."""
PARALLEL = 8
"""Uploads at the same time."""
_SKIPPED = frozenset({".git", ".DS_Store"})
_NOTHING = "nothing was sent"
Stamp = tuple[int, int, int, int]


@dataclass(frozen=True)
class DataFile:
    """
    One local file: its path in the data set, sha256 (hex) and crc32c (base64).

    *stamp* changes whenever the content may have changed.
    """

    relative: str
    path: Path
    size: int
    stamp: Stamp
    sha256: str
    crc32c: str


@dataclass(frozen=True)
class DataSet:
    """One entry of `job.data`. If its source is gs://..., machines list the files themselves."""

    name: str
    source: str
    files: tuple[DataFile, ...] = ()

    @property
    def in_bucket(self) -> bool:
        """Return whether the data is read from a bucket instead of this computer."""
        return self.source.startswith("gs://")

    @property
    def size(self) -> int:
        """Return the bytes of its files on this computer."""
        return sum(file.size for file in self.files)


def scan(
    wanted: Mapping[str, str], base: Path, cache: Path, progress: Callable[[int, int], None] = lambda *_: None
) -> tuple[DataSet, ...]:
    """
    Return the data sets for *wanted* (name to source); a local source is relative to *base*.

    *cache* remembers checksums by size and times, so that unchanged files are not read again. *progress* gets
    the bytes read and their total. Raise UsageError for a source that is missing, unreadable, a special file,
    or a key.
    """
    found = {
        name: [] if source.startswith("gs://") else _walk(name, base / Path(source).expanduser())
        for name, source in wanted.items()
    }
    count = sum(len(files) for files in found.values())
    if count > MAX_FILES:
        raise UsageError(
            f"job.data has {count:,} files, more than {MAX_FILES:,}",
            hint="pack them into larger ones (tar, TFRecord, ArrayRecord, Parquet), which also read faster",
            changed=_NOTHING, code="TPU-144",
        )  # fmt: skip
    sums = _sums([path for files in found.values() for _, path in files], cache, progress)
    return tuple(
        DataSet(name, source, tuple(_file(relative, path, sums) for relative, path in sorted(found[name])))
        for name, source in sorted(wanted.items())
    )


def size_of(wanted: Mapping[str, str], base: Path) -> int:
    """Return the bytes of all local sources without reading the files. Raise UsageError as `scan` does."""
    local = {name: source for name, source in wanted.items() if not source.startswith("gs://")}
    walks = (_walk(name, base / Path(source).expanduser()) for name, source in local.items())
    return sum(path.stat().st_size for found in walks for _, path in found)


def listing(sets: Sequence[DataSet]) -> bytes:
    """Return the file list that is bundled with the code, as JSON; the same files give the same bytes."""
    body = [
        {
            "name": one.name,
            "source": one.source if one.in_bucket else "",
            "files": [{"name": f.relative, "size": f.size, "sha256": f.sha256} for f in one.files],
        }
        for one in sets
    ]
    return json.dumps({"schema": 1, "sets": body}, indent=0, sort_keys=True).encode()


def stamp_of(path: Path) -> Stamp:
    """Return size, inode and times of a file. Raise OSError."""
    found = path.stat()
    return (found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)


def changed(file: DataFile) -> UsageError:
    """Return the error for a file that changed after it was read."""
    return UsageError(
        f"{file.path} of job.data changed while it was read",
        hint="stop what writes to it, then run the command again",
        changed="files already in the bucket stay and are not sent again; the machines are unchanged",
        code="TPU-144",
    )


def missing(store: Store, sets: Sequence[DataSet]) -> list[DataFile]:
    """
    Return the files that the bucket lacks, each content once.

    An object with another checksum counts as missing: an upload that was killed while its file was written
    leaves such a one.
    """
    wanted = {file.sha256: file for one in sets for file in one.files}
    held = store.checksums(DATA) if wanted else {}
    return [f for f in wanted.values() if held.get(DATA + f.sha256) != (f.size, f.crc32c)]


def send(store: Store, files: Sequence[DataFile], sent: Callable[[DataFile], None]) -> None:
    """
    Upload the `missing` files, PARALLEL at a time; call *sent* after each one.

    Safe to repeat after a kill at any line. Raise UsageError for a file that changes meanwhile; its object is
    deleted.
    """
    there = store.checksums(DATA)

    def send_one(file: DataFile) -> None:
        name = DATA + file.sha256
        if stamp_of(file.path) != file.stamp:
            raise changed(file)
        if name in there:
            # The file is in `missing`, so an existing object is damaged, and an upload never overwrites.
            store.delete(name)
        store.upload(name, file.path)
        # The file may have changed after it was hashed: the object would then not match its name.
        if stamp_of(file.path) != file.stamp:
            store.delete(name)
            raise changed(file)
        sent(file)

    pool = ThreadPoolExecutor(PARALLEL)
    try:
        for _ in pool.map(send_one, files):
            pass
    finally:
        # After the first failure, started uploads finish and the others are dropped.
        pool.shutdown(cancel_futures=True)


def _file(relative: str, path: Path, sums: Mapping[Path, tuple[Stamp, str, str]]) -> DataFile:
    stamp, sha256, crc32c = sums[path]
    return DataFile(relative, path, stamp[0], stamp, sha256, crc32c)


def _walk(name: str, source: Path) -> list[tuple[str, Path]]:
    """Return relative path and path of each file of a set; a single file counts as a folder with one file."""
    if source.is_file():
        return [(source.name, source)]
    if not source.is_dir():
        raise _refused(f"{source} is not there", f"correct job.data.{name}, or create it")
    found = [(str(path.relative_to(source)), path) for path in _files(source)]
    keys = [relative for relative, _ in found if named_like_a_key(relative)]
    if keys:
        raise _refused(f"{keys[0]} in {source} is a key file, by its name", "move it out of the data")
    if not found:
        raise _refused(f"{source} contains no files", f"correct job.data.{name}, or put files into it")
    return found


def _files(folder: Path) -> Iterator[Path]:
    try:
        items = list(os.scandir(folder))
    except OSError as error:
        raise _refused(f"{folder} cannot be read: {error.strerror}", "make it readable") from error
    for item in items:
        path = Path(item.path)
        if item.name in _SKIPPED:
            continue
        if item.is_symlink() and item.is_dir():
            raise _refused(f"{path} is a link to a folder", "name that folder in job.data separately")
        if item.is_dir():
            yield from _files(path)
            continue
        try:
            regular = stat.S_ISREG(path.stat().st_mode) and os.access(path, os.R_OK)
        except OSError:
            regular = False
        if not regular:
            raise _refused(f"{path} is not a readable file", "remove it, or make it readable")
        yield path


def _refused(what: str, hint: str) -> UsageError:
    return UsageError(f"job.data: {what}", hint=hint, changed=_NOTHING, code="TPU-144")


def _sums(
    paths: Sequence[Path], cache: Path, progress: Callable[[int, int], None]
) -> dict[Path, tuple[Stamp, str, str]]:
    """Return stamp, sha256 and crc32c of each file; four are read in parallel."""
    known = _recall(cache)
    try:
        stamps = {path: stamp_of(path) for path in paths}
        total, done = sum(stamp[0] for stamp in stamps.values()), 0
        found: dict[Path, tuple[Stamp, str, str]] = {}
        fresh: list[Path] = []
        for path, stamp in stamps.items():
            held = known.get(str(path.absolute()))
            if held is not None and held[0] == stamp:
                found[path] = held
                done += stamp[0]
            else:
                fresh.append(path)
        with ThreadPoolExecutor(4) as pool:
            for path, (sha256, crc32c) in zip(fresh, pool.map(_read, fresh), strict=True):
                found[path] = (stamps[path], sha256, crc32c)
                done += stamps[path][0]
                progress(done, total)
        # A file that was written while it was read has a sum of neither state.
        for path in fresh:
            if stamp_of(path) != stamps[path]:
                raise changed(DataFile("", path, 0, stamps[path], "", ""))
    except OSError as error:
        raise _refused(f"{error.filename} cannot be read: {error.strerror}", "make it readable") from error
    if fresh:
        _remember(cache, known, found)
    return found


def _read(path: Path) -> tuple[str, str]:
    sha256, crc32c = hashlib.sha256(), google_crc32c.Checksum()
    with path.open("rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            sha256.update(block)
            crc32c.update(block)
    return sha256.hexdigest(), base64.b64encode(crc32c.digest()).decode()


def _recall(cache: Path) -> dict[str, tuple[Stamp, str, str]]:
    try:
        body = json.loads(cache.read_bytes())
        return {
            path: ((int(s[0]), int(s[1]), int(s[2]), int(s[3])), str(sha), str(crc))
            for path, (s, sha, crc) in body.items()
        }
    except (OSError, ValueError, TypeError, AttributeError, IndexError):
        return {}


def _remember(
    cache: Path, known: dict[str, tuple[Stamp, str, str]], found: dict[Path, tuple[Stamp, str, str]]
) -> None:
    """Write down what was read; without room for it the next time reads again."""
    now = {**known, **{str(path.absolute()): held for path, held in found.items()}}
    with contextlib.suppress(OSError):
        private_folder(cache.parent)
        with replacing(cache) as file:
            file.write(json.dumps(now).encode())
