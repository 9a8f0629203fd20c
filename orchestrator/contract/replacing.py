"""Replace files atomically: after a kill at any line a reader finds the old content or the new."""

import contextlib
import fcntl
import os
import re
from pathlib import Path
from typing import IO, Iterator, Tuple


@contextlib.contextmanager
def replacing(
    path: Path, mode: int = 0o666, *, synced: bool = True, keeps: bool = False
) -> Iterator[IO[bytes]]:
    """
    Yield a file that replaces *path* when the block succeeds. Raise OSError.

    The umask applies to *mode*. Without *synced* the file may be neither the old nor the new one after a power
    loss. With *keeps* a file that another process has made meanwhile stays, and this one is dropped.
    """
    fresh, handle = _part(path, mode)
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            if synced:
                # Without the sync a power cut could keep the name and lose the content.
                os.fsync(file.fileno())
            # Before the file is closed: without its lock, another writer takes it for a leftover.
            if keeps:
                # A link fails if the file exists; a rename would replace what another process already uses.
                with contextlib.suppress(FileExistsError):
                    os.link(str(fresh), str(path))
                fresh.unlink()
            else:
                fresh.replace(path)
        if synced:
            sync_folder(path.parent)
    except BaseException:
        # Best effort: the disk may be full or gone, and the first error is the one to report.
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def _part(path: Path, mode: int) -> Tuple[Path, int]:
    """Return a new file beside *path*, open and locked; delete what killed writers of *path* have left."""
    start = f".{path.name[:60]}."
    mine = re.compile(rf"{re.escape(start)}[0-9a-f]{{8}}\.tmp")
    # One may be allowed to write to a folder and not to list it.
    with contextlib.suppress(OSError), os.scandir(str(path.parent)) as listed:
        for name in [one.name for one in listed if mine.fullmatch(one.name)]:
            _delete_unlocked(path.with_name(name))
    while True:
        # In the same folder, because a rename cannot cross file systems. A random name, because two processes may
        # write at once; O_EXCL refuses a planted link.
        fresh = path.with_name(f"{start}{os.urandom(4).hex()}.tmp")
        handle = os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        # A file system without locks: then no writer can lock a leftover, so none is ever deleted.
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        # Until it was locked, another writer may have deleted it.
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(fresh.stat(), os.fstat(handle)):
                return fresh, handle
        os.close(handle)


def _delete_unlocked(part: Path) -> None:
    """Delete the file of a writer that was killed; the lock of one that lives says so."""
    with contextlib.suppress(OSError):
        handle = os.open(str(part), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            part.unlink()
        finally:
            os.close(handle)


def write_atomically(path: Path, text: str) -> None:
    """Replace *path* by a file with *text*. Raise OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text.encode())


def sync_folder(folder: Path) -> None:
    """Sync the folder's entry of a new name, which POSIX does not promise for a synced file."""
    handle = os.open(str(folder), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
