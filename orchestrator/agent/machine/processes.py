"""
Find and kill every process of a job, also those that left its process group.

A process belongs to this machine's job if its environment has the job's mark and this machine's root, or if
it is in the session that the agent created for the job.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import time
from pathlib import Path
from typing import List, Optional, Sequence

from orchestrator.agent.machine.docker import remove

MARK = b"TPUCTL_JOB="
PAUSE = 0.05
"""Seconds between two rounds."""
CHECKS = 3
"""Rounds in a row that must find nothing."""


def processes_of(root: Path, session: Optional[int]) -> List[int]:
    """Return the ids of living processes of this machine's jobs, without zombies."""
    return _processes_of([root], session)


def _processes_of(roots: Sequence[Path], session: Optional[int]) -> List[int]:
    markers = [b"TPUCTL_ROOT=" + os.fsencode(str(root)) for root in roots]
    me = os.getpid()
    # Listed again in each round: a job may start processes faster than they are killed.
    numbers = (int(entry.name) for entry in os.scandir("/proc") if entry.name.isdigit())
    return [pid for pid in numbers if pid != me and _belongs(pid, markers, session)]


def clear(root: Path, session: Optional[int], timeout: float = 30.0) -> List[int]:
    """
    Kill every process of this machine's jobs until none is found; return those alive after *timeout* seconds.

    Containers are removed first. Three rounds in a row must find nothing, because a process that forks or
    executes at that moment can be missed.
    """
    return clear_all([root], session, timeout)


def clear_all(roots: Sequence[Path], session: Optional[int] = None, timeout: float = 30.0) -> List[int]:
    """Kill every process of the jobs below *roots* in the same rounds; return those alive after that."""
    for root in roots:
        remove(root)
    end = time.monotonic() + timeout
    empty = 0
    while True:
        living = _processes_of(roots, session)
        empty = 0 if living else empty + 1
        if empty == CHECKS or time.monotonic() > end:
            return living
        for pid in living:
            with contextlib.suppress(ProcessLookupError):
                # Not SIGTERM: the job's grace is over, and a survivor would write over the next start's files.
                os.kill(pid, signal.SIGKILL)
        time.sleep(PAUSE)  # Killed processes take real time to end, and there is no notification for orphans.


def start_time(pid: int) -> str:
    """
    Return a process's start time in clock ticks since boot, "" if it does not exist.

    Together with the id it identifies a process, since ids are reused.
    """
    fields = _stat(pid)
    return fields[19].decode() if len(fields) > 19 else ""


def boot_id() -> str:
    """Return the kernel's random id of this boot."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def _belongs(pid: int, markers: Sequence[bytes], session: Optional[int]) -> bool:
    fields = _stat(pid)
    # A zombie has no memory and no files, and its parent may never reap it.
    if not fields or fields[0] in (b"Z", b"X"):
        return False
    if session is not None and int(fields[3]) == session:
        return True
    try:
        # Unreadable means another user's process, but the job runs as this user.
        environ = _read(pid, "environ").split(b"\0")
    except OSError:
        return False
    return any(marker in environ for marker in markers) and any(entry.startswith(MARK) for entry in environ)


def _stat(pid: int) -> List[bytes]:
    """Return the fields of /proc/PID/stat after the name (which may hold blanks): state, parent, group, session."""
    try:
        return _read(pid, "stat").rpartition(b")")[2].split()
    except OSError:
        return []


def _read(pid: int, name: str) -> bytes:
    # Not through Path: every process of the machine is read three times at each start of a job.
    with io.FileIO(f"/proc/{pid}/{name}") as file:
        return file.readall()
