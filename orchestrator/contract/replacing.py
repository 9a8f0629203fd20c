"""Files that a reader, or a kill at any line, finds as they were or as they shall be, never a part of them."""

import contextlib
import os
from pathlib import Path
from typing import IO, Iterator


@contextlib.contextmanager
def replacing(path: Path, mode: int = 0o666) -> Iterator[IO[bytes]]:
    """
    Give a file to write to, which takes the place of *path* when the block ends well. Raises OSError.

    The umask applies to *mode*.
    """
    # In the same folder, because a rename cannot cross a disk; a random name, because two processes may write
    # it at once, and O_EXCL follows no link that somebody has put there.
    fresh = path.with_name(f".{path.name[:60]}.{os.urandom(4).hex()}.tmp")
    try:
        with os.fdopen(os.open(str(fresh), os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            yield file
            file.flush()
            # Without it the name could outlive a loss of power, and the content not.
            os.fsync(file.fileno())
        fresh.replace(path)
        sync_folder(path.parent)
    except BaseException:
        # Best effort: the disk may be full or gone, and the first error is the one to report.
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise


def write_atomically(path: Path, text: str) -> None:
    """Replace *path* by a file with *text*. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with replacing(path) as file:
        file.write(text.encode())


def sync_folder(folder: Path) -> None:
    """Let the folder itself keep a new name, which POSIX does not promise for a synced file."""
    handle = os.open(str(folder), os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
