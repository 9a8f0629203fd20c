"""Pack folders of a cache into archives, piece by piece, and unpack them beside their place."""

from __future__ import annotations

import contextlib
import gzip
import mmap
import os
import posixpath
import shutil
import stat
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Callable, Dict, Iterator, List, Literal, Mapping, Sequence, Tuple

from orchestrator.agent.caches.cache_manifest import Piece
from orchestrator.contract.file_checksum import sha256_of
from orchestrator.contract.machine_errors import DamagedError

PREFIX = "prefix"
"""The place that pip installs into in the image's own Python, shared with the image's files."""
IN_PREFIX = frozenset({"bin", "etc", "include", "lib", "lib64", "man", "share"})
"""Folders that pip installs into; other programs write beside them, for example below /usr/local/var."""
OURS = ".tpuctl-"
"""Prefix of temporary names that we create in a folder; never packed."""
PIECE = 64 << 20
"""Bytes of a full piece; pieces are packed and unpacked in parallel."""
BLOCK = 1 << 18
MAX_TEXT = 1 << 20
LEVEL = "-3"
CREDENTIALS = frozenset({"token", "stored_tokens", ".netrc", ".pypirc", ".git-credentials"})
"""Names of files with credentials, such as the token of the Hugging Face hub; never packed."""


@dataclass(frozen=True)
class CacheFile:
    """One file, link or empty folder as found on disk; *member* is its name in an archive."""

    member: str
    path: str
    size: int
    modified: int
    mode: int

    @property
    def is_folder(self) -> bool:
        """Return whether it is a folder; only empty ones are packed, since files create their own."""
        return stat.S_ISDIR(self.mode)

    @property
    def state(self) -> List[int]:
        """Return values that change whenever the file changes."""
        return [self.size, self.modified]


def files_below(folders: Mapping[str, Path]) -> Dict[str, CacheFile]:
    """Return files, links and empty folders below *folders* by member name; unreadable ones are left out."""
    found: Dict[str, CacheFile] = {}
    for name, folder in folders.items():
        for one in _below(name, folder):
            found[one.member] = one
    return found


def _below(member: str, folder: Path) -> Iterator[CacheFile]:
    waiting = [(member, str(folder))]
    while waiting:
        above, here = waiting.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda one: one.name)
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(OURS) or entry.name in CREDENTIALS:
                continue
            if above == PREFIX and entry.name not in IN_PREFIX:
                continue
            try:
                about = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            name = f"{above}/{entry.name}"
            if stat.S_ISDIR(about.st_mode):
                waiting.append((name, entry.path))
                if next(os.scandir(entry.path), None) is not None:
                    continue
            if stat.S_IFMT(about.st_mode) in (stat.S_IFREG, stat.S_IFLNK, stat.S_IFDIR):
                size = about.st_size if stat.S_ISREG(about.st_mode) else 0
                yield CacheFile(name, entry.path, size, about.st_mtime_ns, about.st_mode)


def in_pieces(found: Sequence[CacheFile]) -> List[List[CacheFile]]:
    """Return the files sorted by name and cut into pieces."""
    pieces: List[List[CacheFile]] = []
    room = 0
    for one in sorted(found, key=lambda file: file.member):
        if not pieces or room < one.size:
            pieces.append([])
            room = PIECE
        pieces[-1].append(one)
        room -= one.size
    return pieces


@dataclass(frozen=True)
class PackedPiece:
    """A packed piece at *path*; *naming* and *fixed* as in `CacheManifest`."""

    piece: Piece
    path: Path
    naming: Tuple[str, ...]
    fixed: str


def pack(
    files: Sequence[CacheFile], path: Path, paths: Sequence[bytes], check: Callable[[], None]
) -> PackedPiece:
    """
    Write files to one archive at *path*. Raise OSError, and DamagedError for a file that changes meanwhile.

    *paths* are searched for in each file; *check* is called before each file and may raise.
    """
    naming: List[str] = []
    fixed = ""
    kind = "zst" if shutil.which("zstd") else "gz"
    with _packer(kind, path) as sink, tar_of(sink, "w|") as tar:
        for one in files:
            check()
            entry = tarfile.TarInfo(one.member)
            entry.mode, entry.mtime = one.mode & 0o777, one.modified // 1_000_000_000
            if stat.S_ISREG(one.mode):
                holds = _add(tar, entry, one, paths)
                naming += [one.member] if holds == "text" else []
                fixed = one.member if holds == "program" else fixed
            elif stat.S_ISLNK(one.mode):
                entry.type, entry.linkname = tarfile.SYMTYPE, os.readlink(one.path)  # noqa: PTH115 (3.9)
                tar.addfile(entry)
            else:
                entry.type = tarfile.DIRTYPE
                tar.addfile(entry)
    piece = Piece(sha256_of(path), path.stat().st_size, sum(one.size for one in files), len(files), kind)
    return PackedPiece(piece, path, tuple(naming), fixed)


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, one: CacheFile, paths: Sequence[bytes]) -> str:
    """Add one file; return "text" or "program" if it contains one of *paths*, else "". Raise DamagedError."""
    # O_NOFOLLOW: the file may have been replaced by a link, which may lead anywhere.
    with os.fdopen(os.open(one.path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as file:
        entry.size = one.size
        try:
            tar.addfile(entry, file)
        except OSError as error:
            raise DamagedError(f"{one.path} changed while it was read: {error}") from error
        about = os.fstat(file.fileno())
        if [about.st_size, about.st_mtime_ns] != one.state:
            raise DamagedError(f"{one.path} changed while it was read")
        # Python corrects the path in a .pyc file when it loads it.
        if not paths or not one.size or one.path.endswith(".pyc"):
            return ""
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            if all(data.find(path) < 0 for path in paths):
                return ""
            return "text" if data.find(b"\0") < 0 else "program"


@contextlib.contextmanager
def _packer(kind: str, path: Path) -> Iterator[IO[bytes]]:
    """Yield a file object that compresses into *path*. Raise OSError."""
    with path.open("wb") as out:
        if kind == "gz":
            with gzip.GzipFile("", "wb", 1, out, mtime=0) as sink:
                yield sink  # type: ignore[misc]
            return
        with zstd(["-q", LEVEL, "-T1", "-c"], stdin=subprocess.PIPE, stdout=out) as program:
            assert program.stdin is not None  # noqa: S101 (asked for above)
            yield program.stdin
            program.stdin.close()
            if program.wait():
                raise OSError(f"zstd left with {program.returncode}")


@contextlib.contextmanager
def zstd(
    words: List[str], stdin: "IO[bytes] | int", stdout: "IO[bytes] | int"
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run zstd; kill it at the end of the block."""
    program = subprocess.Popen(["zstd", *words], stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL)
    try:
        yield program
    finally:
        # Also on an exception: a zstd process whose input is never closed would not end.
        program.kill()
        program.wait()


def tar_of(stream: IO[bytes], mode: Literal["r|", "w|"]) -> tarfile.TarFile:
    """Open an archive that is read or written from front to back."""
    return tarfile.open(fileobj=stream, mode=mode, bufsize=BLOCK, format=tarfile.PAX_FORMAT)


def is_outside(member: str, leads: str) -> bool:
    """Return whether a link with that name and target leaves the place that its name starts with."""
    end = posixpath.normpath(posixpath.join(posixpath.dirname(member), leads))
    place = member.partition("/")[0]
    return leads.startswith("/") or not (end == place or end.startswith(f"{place}/"))


def leads_out(one: CacheFile) -> bool:
    """Return whether it is a link that leaves its place, or an unreadable one."""
    try:
        if not stat.S_ISLNK(one.mode):
            return False
        return is_outside(one.member, os.readlink(one.path))  # noqa: PTH115 (3.9)
    except OSError:
        return True
