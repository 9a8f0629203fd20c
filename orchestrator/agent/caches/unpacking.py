"""
Unpack archives of a cache beside its place.

Processes do it: threads of the agent would wait for each other at every file, because only one of them runs
Python at a time.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zlib
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Queue
from typing import IO, Any, Dict, Iterator, List, Mapping, Optional, Set, Tuple

from orchestrator.agent.caches.cache_manifest import Piece, check_member
from orchestrator.agent.caches.pieces import BLOCK, is_outside, tar_of, zstd
from orchestrator.contract.machine_errors import DamagedError

MAX_TEXT = 1 << 20
PACKAGE_PARENT = Path(__file__).parents[3]
"""What holds our package: a folder, or the archive that the agent is."""
START = f"import sys; sys.path[0] = sys.argv[1]; from {__name__} import main; main()"


@dataclass(frozen=True)
class NewPaths:
    """Replace each *old* path by the new one in links and in the text files *naming*, by member name."""

    pairs: Tuple[Tuple[str, str], ...] = ()
    naming: Tuple[str, ...] = ()

    def put_into(self, data: bytes) -> bytes:
        """Return the content with the new paths."""
        for old, new in self.pairs:
            data = data.replace(os.fsencode(old), os.fsencode(new))
        return data


@dataclass(frozen=True)
class Unpacking:
    """
    Unpack *archive* below *staged*, a new folder for each place.

    *inside* forbids links that leave their place.
    """

    archive: str
    piece: Piece
    staged: Mapping[str, str]
    inside: bool
    paths: NewPaths = NewPaths()

    def line(self) -> bytes:
        """Return it as a line of JSON."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @staticmethod
    def of_line(line: bytes) -> Unpacking:
        """Return what `line` wrote."""
        value: Dict[str, Any] = json.loads(line)
        pairs, naming = value["paths"]["pairs"], value["paths"]["naming"]
        paths = NewPaths(tuple((old, new) for old, new in pairs), tuple(naming))
        return Unpacking(value["archive"], Piece(**value["piece"]), value["staged"], value["inside"], paths)


class UnpackProcesses:
    """Up to *most* processes that unpack, each started when it is needed first."""

    def __init__(self, most: int) -> None:
        self._idle: Queue[Optional[subprocess.Popen[bytes]]] = Queue()
        self.started: List[subprocess.Popen[bytes]] = []
        for _ in range(most):
            self._idle.put(None)

    def close(self) -> None:
        """End them, also one that has not finished."""
        for one in self.started:
            one.kill()
            one.wait()
            for pipe in (one.stdin, one.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]

    def unpack(self, unpacking: Unpacking) -> None:
        """Unpack one archive. Raise OSError, and DamagedError for bad content."""
        program = self._idle.get()
        try:
            program = program or self._start()
            assert program.stdin is not None  # noqa: S101 (asked for)
            assert program.stdout is not None  # noqa: S101 (asked for)
            program.stdin.write(unpacking.line())
            program.stdin.flush()
            answer = program.stdout.readline()
        finally:
            self._idle.put(program)
        if not answer:
            raise OSError(
                f"the process that unpacks {Path(unpacking.archive).name} left with {program.wait()}"
            )
        said: Dict[str, str] = json.loads(answer)
        if "damaged" in said:
            raise DamagedError(said["damaged"])
        if "error" in said:
            raise OSError(said["error"])

    def _start(self) -> subprocess.Popen[bytes]:
        program = subprocess.Popen(
            # -E: the variables of the job, such as PYTHONHOME, are not ours.
            [sys.executable, "-E", "-S", "-c", START, str(PACKAGE_PARENT)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.started.append(program)
        return program


def main() -> None:
    """Unpack what each line of the standard input names, and answer with a line of JSON."""
    lines: Queue[bytes] = Queue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        # The agent has ended or was killed: its successor unpacks in the same folders.
        os._exit(1)

    threading.Thread(target=read, daemon=True).start()
    while True:
        answer: Dict[str, str] = {}
        try:
            unpack(Unpacking.of_line(lines.get()))
        except DamagedError as error:
            answer = {"damaged": str(error)}
        except OSError as error:
            answer = {"error": str(error)}
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()


def unpack(unpacking: Unpacking) -> None:
    """Unpack one archive in this process. Raise OSError, and DamagedError for bad content."""
    archive, piece = Path(unpacking.archive), unpacking.piece
    staged = {place: Path(folder) for place, folder in unpacking.staged.items()}
    naming = frozenset(unpacking.paths.naming)
    links: List[Tuple[Path, str]] = []
    made: Set[Path] = set()
    rest, files = piece.unpacked, piece.files
    try:
        with _unpacker(piece.kind, archive) as source, tar_of(source, "r|") as tar:
            for member in tar:
                check_member(member.name)
                place, _, relative = member.name.partition("/")
                rest, files = rest - member.size, files - 1
                if place not in staged or not relative or rest < 0 or files < 0:
                    raise DamagedError(
                        f"{archive.name} holds {member.name[:200]!r}, which its manifest does not"
                    )
                target = staged[place] / relative
                if target.parent not in made:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    made.add(target.parent)
                if member.issym():
                    links.append((target, _link_of(member, unpacking)))
                elif member.isdir():
                    target.mkdir(exist_ok=True)
                elif member.isfile():
                    _write(tar, member, target, unpacking.paths if member.name in naming else None)
                else:
                    raise DamagedError(
                        f"{archive.name} holds {member.name!r}, which is not a file, folder or link"
                    )
    except (tarfile.TarError, ValueError, EOFError, zlib.error) as error:
        raise DamagedError(f"{archive.name} is not a complete archive: {error}") from error
    if rest or files:
        raise DamagedError(f"{archive.name} holds less than its manifest says")
    # Links are created last, so that no file was written through one.
    for target, leads in links:
        target.symlink_to(leads)


@contextlib.contextmanager
def _unpacker(kind: str, path: Path) -> Iterator[IO[bytes]]:
    """Yield the uncompressed content of *path*. Raise DamagedError if zstd cannot read it."""
    if kind == "gz":
        with gzip.open(str(path), "rb") as source:
            yield source  # type: ignore[misc]
        return
    with path.open("rb") as packed, zstd(["-q", "-d", "-c"], packed, subprocess.PIPE) as program:
        assert program.stdout is not None  # noqa: S101 (asked for above)
        yield program.stdout
        # Read to the end: zstd verifies its checksum only there.
        while program.stdout.read(BLOCK):
            pass
        if program.wait():
            raise DamagedError(f"{path.name} cannot be unpacked: zstd left with {program.returncode}")


def _link_of(member: tarfile.TarInfo, unpacking: Unpacking) -> str:
    leads = member.linkname
    if unpacking.inside and is_outside(member.name, leads):
        raise DamagedError(f"{member.name!r} is a link to {leads!r}, out of its folder")
    return os.fsdecode(unpacking.paths.put_into(os.fsencode(leads)))


def _write(tar: tarfile.TarFile, member: tarfile.TarInfo, target: Path, paths: Optional[NewPaths]) -> None:
    source = tar.extractfile(member)
    if source is None:
        raise DamagedError(f"{member.name!r} holds nothing")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    # Archives give neither set-user-id bits nor owners, and never write permission for others.
    with os.fdopen(os.open(str(target), flags, member.mode & 0o755 | 0o600), "wb") as file:
        if paths is not None and member.size <= MAX_TEXT:
            file.write(paths.put_into(source.read()))
        else:
            shutil.copyfileobj(source, file, BLOCK)
    # Python compares the seconds of a module's time with those in its .pyc file.
    when = int(member.mtime)
    os.utime(str(target), (when, when))


def merge(staged: Path, target: Path) -> None:
    """
    Move unpacked files to their place and replace files of the same name. Raise OSError and DamagedError.

    A folder that does not exist yet appears by one rename; nothing is moved through a link.
    """
    if not os.path.lexists(str(target)):
        target.parent.mkdir(parents=True, exist_ok=True)
        staged.rename(target)
        return
    if target.is_symlink() or not target.is_dir():
        raise DamagedError(f"{target} exists and is not a folder")
    for entry in list(os.scandir(str(staged))):
        place = target / entry.name
        if entry.is_dir(follow_symlinks=False):
            merge(Path(entry.path), place)
        elif place.is_dir() and not place.is_symlink():
            raise DamagedError(f"{place} is a folder, and no file can take its place")
        else:
            Path(entry.path).replace(place)
