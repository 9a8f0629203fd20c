"""Replace or append to local files durably, and translate disk errors."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orchestrator.contract.replacing import replacing, sync_folder
from orchestrator.errors import disk_error
from orchestrator.private_folders import private_folder


@contextmanager
def _on_disk(path: Path) -> Iterator[None]:
    """Create the file's folder with mode 0700, and raise OSErrors of the block as DiskError."""
    try:
        private_folder(path.parent)
        yield
    except OSError as error:
        on_disk = disk_error(error, path)
        if on_disk is None:
            raise
        raise on_disk from error


def write_private(path: Path, data: bytes) -> None:
    """
    Replace *path* by *data*, mode 0600, synced to disk before the rename.

    Raise DiskError if the disk refuses; the old content is still there then.
    """
    with _on_disk(path), replacing(path, 0o600) as file:
        file.write(data)


def append_synced(path: Path, line: bytes) -> None:
    """
    Append *line* and sync it to disk before returning.

    An unfinished line of an earlier write (after a kill or on a full disk) is ended first. Raise DiskError if
    the disk refuses; part of the line may have been written.
    """
    with _on_disk(path):
        new = not path.exists()
        with path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                # Append mode writes at the end wherever the read above has moved the position.
                line = line if file.read(1) == b"\n" else b"\n" + line
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        if new:
            # Sync the folder too, or a power cut could lose the entry of a file whose content is on disk.
            sync_folder(path.parent)
