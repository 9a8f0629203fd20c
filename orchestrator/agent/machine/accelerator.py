"""Find what blocks the TPU: another program's process, or the lock file that one has left."""

from __future__ import annotations

import contextlib
import fcntl
import os
from dataclasses import dataclass
from pathlib import Path
from typing import List

DEVICES = Path("/dev")
PROCESSES = Path("/proc")
LOCK = Path("/tmp/libtpu_lockfile")  # noqa: S108 (libtpu's own name)
"""The file that libtpu locks with flock(2). The lock ends with the process; the file stays."""
MAX_LENGTH = 80


@dataclass(frozen=True)
class DeviceUser:
    """A process that has a device of the TPU open."""

    pid: int
    command: str


def obstacles(devices: Path = DEVICES, processes: Path = PROCESSES, lock: Path = LOCK) -> List[str]:
    """
    Return what blocks the TPU, as messages; remove a lock file that no process holds.

    Call it when no process of the job is left. Another user's lock file would stop libtpu even as root,
    because Ubuntu sets fs.protected_regular (docs/facts.md 7.4).
    """
    if not any(devices.glob("accel[0-9]*")) and not any(devices.glob("vfio/[0-9]*")):
        return []
    found = device_users(devices, processes)
    if found:
        return [
            f"the TPU is in use by process {one.pid} ({one.command}), which is not the job's; "
            f"libtpu lets in one process only. To end it: tpuctl exec -- sudo kill {one.pid}"
            for one in found
        ]
    removed = _remove(lock)
    return [f"{lock} was left by a process that is gone, and is removed"] if removed else []


def device_users(devices: Path, processes: Path) -> List[DeviceUser]:
    """Return the processes that have a device of the TPU open, as far as permissions allow."""
    found = []
    for process in processes.glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it has ended, or belongs to another user
            if any(_is_device(os.readlink(str(one)), devices) for one in (process / "fd").iterdir()):  # noqa: PTH115 (Python 3.8)
                # It may end between these two reads, and then holds nothing any more.
                words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
                found.append(DeviceUser(int(process.name), words.strip()[:MAX_LENGTH]))
    return sorted(found, key=lambda one: one.pid)


def _is_device(name: str, devices: Path) -> bool:
    folder, _, last = name.rpartition("/")
    if folder == str(devices / "vfio"):
        return last.isdigit()
    return folder == str(devices) and last.startswith("accel") and last[5:].isdigit()


def _remove(lock: Path) -> bool:
    """Remove the file unless its lock is held; return whether this call removed it."""
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # While holding the lock: without the file of a running libtpu, a second process could start.
            lock.unlink()
    except OSError:
        return False
    return True
