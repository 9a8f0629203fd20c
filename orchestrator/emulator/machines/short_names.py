"""
Short names for the folders of temporary files of `process` machines.

The path of a Unix socket has at most 107 bytes (unix(7)), and Python puts its own below TMPDIR: the folder of
a machine has more than that, and a manager or a queue of multiprocessing fails there.
"""

import hashlib
import os
import stat
from contextlib import suppress
from pathlib import Path

LONGEST = 60
"""Bytes of TMPDIR that leave room for the names that multiprocessing and torch add."""
SHORT = Path("/tmp")  # noqa: S108 - the folder in it has a random name and belongs to this user alone


def short_name(cloud_id: str, machine_id: str, folder: Path) -> Path:
    """Return a short path that leads to *folder*, or *folder* itself where it is short or none can be made."""
    if len(os.fsencode(folder)) <= LONGEST:
        return folder
    name = _name(cloud_id, machine_id)
    try:
        with suppress(FileExistsError):
            name.parent.mkdir(mode=0o700)
        if not _is_ours(name.parent):
            return folder
        name.unlink(missing_ok=True)
        name.symlink_to(folder)
    except OSError:
        return folder
    return name


def forget_short_name(cloud_id: str, machine_id: str) -> None:
    """Remove the machine's short name, and the folder of its cloud when it was the last."""
    name = _name(cloud_id, machine_id)
    if _is_ours(name.parent):
        with suppress(OSError):
            name.unlink(missing_ok=True)
            name.parent.rmdir()


def _name(cloud_id: str, machine_id: str) -> Path:
    return SHORT / f"tpuctl-{cloud_id}" / hashlib.sha256(machine_id.encode()).hexdigest()[:8]


def _is_ours(folder: Path) -> bool:
    """Tell whether it is a folder, no link, that nobody else can write to."""
    try:
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022
