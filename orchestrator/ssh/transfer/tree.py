"""
Copy a folder to or from a machine; its name appears only when all of it has arrived.

An archive from a machine is not trusted: nothing is written outside of the new folder, links are created last
and only if they stay inside it, and no header makes this computer allocate much memory.
"""

import fcntl
import glob
import os
import shutil
import tarfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from orchestrator.errors import UNFORESEEN, RemoteError
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.run import drain, exit_code, read
from orchestrator.ssh.transfer.copy import HINTS, Hints, failed

if TYPE_CHECKING:
    import paramiko

    from orchestrator.ssh.connect.connection import Connection

_CHANGED = 1
"""Exit status of GNU tar if a file changed while it was read; all other files are whole."""
_CHUNK = 256 * 1024
_MOST_HEADER = 1 << 20
"""Bytes of one header (such as a long name), and of the padding after the last file."""
_MOST_NAMED = 20
_SAID = 64 << 10

OnProgress = Callable[[int, str], None]
"""Called with the bytes copied so far and the current file."""


@dataclass
class TreeCopied:
    """
    What was copied; *changed* files were written to during the copy, *skipped* ones are left out.

    Both lists hold at most 20 names. Skipped are devices, sockets, and links that lead out of the folder.
    """

    files: int = 0
    size: int = 0
    changed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)


def fetch_tree(
    connection: "Connection", source: str, target: Path, root: str, progress: OnProgress, hints: Hints = HINTS
) -> TreeCopied:
    """Copy folder *source* of the machine to the new folder *target*. Raise RemoteError and OSError."""
    _delete_killed(target)
    part = target.with_name(f"{_prefix(target)}{os.urandom(4).hex()}")
    part.mkdir()
    try:
        with _locked(part), connection:
            channel = connection.execute(elevated(remote_script("cp-give-folder", source), root))
            said, listener = _listen(channel)
            stream = Incoming(read(connection, channel))
            try:
                done = unpack(stream, part, progress)
            except (tarfile.TarError, *UNFORESEEN) as error:
                # A stream that has not ended may never end, so it is cut; otherwise wait for tar's own message.
                if not stream.over:
                    channel.close()
                listener.join()
                message = _words(said) or f"what it sent is not an archive ({type(error).__name__})"
                code = channel.recv_exit_status() if stream.over else 0
                raise failed(connection, message, str(target), hints.get(code, "")) from error
            listener.join()
            code = exit_code(connection, channel)
            done.changed = _changed(connection, code, _words(said), target, hints.get(code, ""))
        # Only now, when tar has ended and its exit status is known.
        part.rename(target)
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise
    return done


def _prefix(target: Path) -> str:
    return f".{target.name}.tpuctl-part-"


@contextmanager
def _locked(part: Path) -> Iterator[None]:
    """Hold the lock which says that a copy writes into *part*; the system frees it when the process ends."""
    handle = os.open(part, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def _delete_killed(target: Path) -> None:
    """Delete what copies to *target* have left that were killed."""
    for part in target.parent.glob(f"{glob.escape(_prefix(target))}*"):
        # Held: another copy still writes. Not to be opened or deleted: it is not ours.
        with suppress(OSError), _locked(part):
            shutil.rmtree(part)


def _changed(connection: "Connection", code: int, words: str, target: Path, hint: str) -> list[str]:
    """Return tar's messages about files that changed while read. Raise RemoteError if tar failed."""
    if code not in (0, _CHANGED):
        raise failed(connection, words or f"tar ends with {code}", str(target), hint)
    return words.splitlines()[:_MOST_NAMED] if code == _CHANGED else []


def send_tree(
    connection: "Connection", source: Path, target: str, root: str, progress: OnProgress, hints: Hints = HINTS
) -> TreeCopied:
    """
    Copy folder *source* to the new folder *target* of the machine, or into it if it exists.

    Raise RemoteError and OSError.
    """
    mark, done = f".tpuctl-whole-{os.urandom(8).hex()}", TreeCopied()
    with connection:
        command = elevated(remote_script("cp-take-folder", target, source.resolve().name, mark), root)
        channel = connection.execute(command)
        said, listener = _listen(channel)
        sink: Any = _Outgoing(connection, channel)
        # If the machine closes its side, its error output names the cause better than the broken pipe does.
        with suppress(_GoneError), tarfile.open(fileobj=sink, mode="w|", format=tarfile.GNU_FORMAT) as tar:
            pack(tar, source, done, progress)
            tar.addfile(tarfile.TarInfo(mark))
        sink.end()
        listener.join()
        code = exit_code(connection, channel)
    if code:
        raise failed(connection, _words(said) or f"status {code}", target, hints.get(code, ""), to=True)
    return done


def unpack(stream: "Incoming", into: Path, progress: OnProgress) -> TreeCopied:
    """
    Extract the archive in *stream* below the empty folder *into*.

    Raise RemoteError for a malicious archive, tarfile's errors and OSError.
    """
    done, links = TreeCopied(), list[tuple[str, str]]()
    archive: Any = tarfile.TarFile
    with archive(fileobj=stream) as tar:
        while (member := tar.next()) is not None:
            # tarfile keeps every member in memory otherwise.
            tar.members.clear()
            parts = _parts(member.name)
            path = into.joinpath(*parts)
            try:
                if member.isdir():
                    path.mkdir(parents=True, exist_ok=True)
                elif member.issym():
                    links.append(("/".join(parts), member.linkname))
                # A sparse file of a few bytes can claim a size that fills the disk.
                elif member.isreg() and not member.issparse():
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _write(stream, path, member, progress, done.size)
                    done.files, done.size = done.files + 1, done.size + member.size
                else:
                    _note(done, "/".join(parts))
            except (FileExistsError, NotADirectoryError) as error:
                raise _refused(f"{member.name!r} twice") from error
    stream.end()
    _link_all(into, links, done)
    return done


def _link_all(into: Path, links: list[tuple[str, str]], done: TreeCopied) -> None:
    """Create the links last, so that no file can be written through one. Raise RemoteError for duplicates."""
    try:
        # Create all parent folders before the first link: below a link, `..` would start at another place.
        for name, _ in links:
            (into / name).parent.mkdir(parents=True, exist_ok=True)
        for name, leads_to in links:
            if stays_inside(name, leads_to):
                (into / name).symlink_to(leads_to)
            else:
                _note(done, name)
    except (FileExistsError, NotADirectoryError) as error:
        raise _refused(f"{name!r} twice") from error


def pack(tar: Any, source: Path, done: TreeCopied, progress: OnProgress) -> None:
    """Add what folder *source* holds to *tar*. Raise OSError, and RemoteError if a file becomes shorter."""
    for folder, folders, files in os.walk(source, onerror=_raise):
        folders.sort()
        linked = [name for name in folders if Path(folder, name).is_symlink()]
        plain = [name for name in folders if name not in linked]
        for name in (*sorted([*files, *linked]), *plain):
            path = Path(folder, name)
            inside = path.relative_to(source).as_posix()
            # tarfile would store a second hard link as a reference; each name becomes a file of its own.
            tar.inodes.clear()
            info = tar.gettarinfo(path, inside)
            if info is None or not (info.isreg() or info.isdir() or info.issym()):
                _note(done, inside)
                continue
            info.uid = info.gid = 0
            info.uname = info.gname = ""
            if info.issym() and not stays_inside(inside, info.linkname):
                _note(done, inside)
            elif info.isreg():
                progress(done.size, inside)
                with path.open("rb") as file:
                    tar.addfile(info, _Whole(file, inside))
                    now = os.fstat(file.fileno())
                if (now.st_size, int(now.st_mtime)) != (info.size, int(info.mtime)):
                    done.changed = [*done.changed, inside][:_MOST_NAMED]
                done.files, done.size = done.files + 1, done.size + info.size
            else:
                tar.addfile(info)


def stays_inside(name: str, leads_to: str) -> bool:
    """
    Return whether a link at relative path *name* points into the copied folder.

    `..` is allowed at the beginning only: after a name, which may itself be a link, it could lead anywhere.
    """
    steps = leads_to.split("/")
    up = 0
    while up < len(steps) and steps[up] in ("..", "."):
        up += 1
    climbs = steps[:up].count("..")
    return (
        bool(leads_to)
        and not leads_to.startswith("/")
        and climbs <= name.count("/")
        and ".." not in steps[up:]
    )


class Incoming:
    """A file object for tarfile over the machine's output, which never buffers more than one request."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = bytearray()
        self._at = 0
        self.over = False

    def read(self, size: int) -> bytes:
        """Return *size* bytes, fewer only at the end. Raise RemoteError for more than a header may have."""
        if size > _MOST_HEADER:
            raise _refused(f"a header of {size:,} bytes")
        while len(self._held) < size:
            data = next(self._chunks, b"")
            if not data:
                self.over = True
                break
            self._held += data
        found = bytes(self._held[:size])
        del self._held[:size]
        self._at += len(found)
        return found

    def tell(self) -> int:
        """Return the number of bytes read so far."""
        return self._at

    def seek(self, position: int) -> None:
        """Skip forward to *position*. Raise tarfile.ReadError if the stream ends before it."""
        while self._at < position:
            if not self.read(min(_CHUNK, position - self._at)):
                raise tarfile.ReadError("it ends too early")

    def end(self) -> None:
        """Read the padding after the archive. Raise RemoteError if it is longer than tar writes."""
        rest = _MOST_HEADER
        while data := self.read(_CHUNK):
            rest -= len(data)
            if rest < 0:
                raise _refused("more after the end of the archive")


class _GoneError(Exception):
    """The machine has closed its side while we still send."""


class _Outgoing:
    """A file object for tarfile that sends to the machine."""

    def __init__(self, connection: "Connection", channel: "paramiko.Channel") -> None:
        self._connection = connection
        self._channel = channel

    def write(self, data: bytes) -> int:
        try:
            self._channel.sendall(data)
        except (OSError, EOFError) as error:
            raise _GoneError from error
        self._connection.touch()
        return len(data)

    def end(self) -> None:
        with suppress(OSError, EOFError):
            self._channel.shutdown_write()


class _Whole:
    """A file object for tarfile that raises RemoteError if the file has become shorter."""

    def __init__(self, file: IO[bytes], name: str) -> None:
        self._file = file
        self._name = name

    def read(self, size: int) -> bytes:
        data = self._file.read(size)
        if len(data) < size:
            raise RemoteError(
                f"{self._name} became shorter while it was copied",
                hint="run it again when no program writes to that file", changed="nothing was copied",
            )  # fmt: skip
        return data


def _listen(channel: "paramiko.Channel") -> tuple[bytearray, threading.Thread]:
    """Read the command's error output in a thread: a full window would block the command."""
    said = bytearray()
    thread = threading.Thread(target=drain, args=(channel, said, _SAID), daemon=True)
    thread.start()
    return said, thread


def _words(said: bytearray) -> str:
    return bytes(said).decode(errors="replace").strip()[-600:]


def _refused(what: str) -> RemoteError:
    """Return the error for an answer that the tar of our script never sends."""
    return RemoteError(
        f"the machine sent {what}",
        hint="the tar there is broken or was replaced; see: tpuctl exec -- tar --version",
        changed="nothing was copied",
    )


def _parts(name: str) -> list[str]:
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts or "\0" in name:
        raise _refused(f"a path that leads out of the folder: {name[:200]!r}")
    return parts


def _write(
    stream: Incoming, path: Path, member: tarfile.TarInfo, progress: OnProgress, before: int
) -> None:  # fmt: skip
    # No setuid bits from the machine, and the user's umask applies.
    mode = 0o777 if member.mode & 0o100 else 0o666
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, mode), "wb") as file:
        done = 0
        while done < member.size:
            progress(before + done, path.name)
            data = stream.read(min(_CHUNK, member.size - done))
            if not data:
                raise tarfile.ReadError("it ends too early")
            file.write(data)
            done += len(data)
    with suppress(OSError, OverflowError, ValueError):
        os.utime(path, (member.mtime, member.mtime))


def _note(done: TreeCopied, name: str) -> None:
    if len(done.skipped) < _MOST_NAMED:
        done.skipped.append(name)


def _raise(error: OSError) -> Any:
    raise error
