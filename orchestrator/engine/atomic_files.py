"""Files of this computer: replaced or appended to, durable, and with the disk's refusals in words."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.contract.replacing import replacing, sync_folder
from orchestrator.errors import DiskError
from orchestrator.private_folders import private_folder

NO_ROOM = {errno.ENOSPC, errno.EDQUOT, errno.EROFS}
NO_WAY = {errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.EIO}


def disk_trouble(error: OSError, path: Path | None = None) -> DiskError | None:
    """Return what *error* means when it is about this computer's disk, else None."""
    where = path or error.filename
    full = error.errno in NO_ROOM
    if not full and not (where and error.errno in NO_WAY):
        return None
    what = "written" if full else "read or written"
    return DiskError(
        f"{where or 'a file of this computer'} cannot be {what}: {(error.strerror or str(error)).lower()}",
        hint="make room, or let this user read and write there; then run the same command again "
        "(TPUCTL_STATE_DIR names another folder for what tpuctl remembers)",
        changed="what was made or deleted before this is so still; `tpuctl status` shows it",
    )


@contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    """Make the file's folder for this user alone; raise what the disk refuses as DiskError."""
    try:
        private_folder(path.parent)
        yield
    except OSError as error:
        trouble = disk_trouble(error, path)
        if trouble is None:
            raise
        raise trouble from error


def write_atomically(path: Path, data: bytes) -> None:
    """
    Replace *path* by *data*, readable by the owner only, synced to disk before the rename.

    Raise DiskError when the disk does not take it; then the old content is still there.
    """
    with _on_disk(path), replacing(path, 0o600) as file:
        file.write(data)


def append_synced(path: Path, line: bytes) -> None:
    """
    Append *line* and sync it to disk before returning.

    What a kill or a full disk left of an earlier line is ended first, so that it spoils no other. Raise
    DiskError when the disk does not take it; a part of the line may be there.
    """
    with _on_disk(path):
        new = not path.exists()
        with path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                # In append mode every write goes to the end, wherever the read above has left the position.
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if new:
            # A power cut must not take the folder's entry of a file whose content is safe.
            sync_folder(path.parent)
