"""Replace files atomically: after a kill at any line a reader finds the old content or the new."""

import contextlib
import os
from pathlib import Path
from typing import IO, Iterator


@contextlib.contextmanager
def replacing(
    path: Path, mode: int = 0o666, *, synced: bool = True, keeps: bool = False
) -> Iterator[IO[bytes]]:
    """
    Yield a file that replaces *path* when the block succeeds. Raise OSError.

    The umask applies to *mode*. Without *synced* the file may be neither the old nor the new one after a power
    loss. With *keeps* a file that another process has made meanwhile stays, and this one is dropped.
    """
    # In the same folder, because a rename cannot cross file systems. A random name, because two processes may write
    # at once; O_EXCL refuses a planted link.
    fresh = path.with_name(f".{path.name[:60]}.{os.urandom(4).hex()}.tmp")
    try:
        with os.fdopen(os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            if synced:
                # Without the sync a power cut could keep the name and lose the content.
                os.fsync(file.fileno())
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
