"""This process as the holder of a lease."""

import getpass
import os
import socket
import uuid
from pathlib import Path

from orchestrator.domain.lease import Holder


def this_process(command: str, now: float, yields: tuple[str, ...] = ()) -> Holder:
    """Return this process as a holder."""
    who = f"{_user()}@{socket.gethostname()}"
    boot, space = _system()
    return Holder(uuid.uuid4().hex, who, command, now, os.getpid(), boot, space, yields)


def process_ended(holder: Holder) -> bool:
    """Say whether *holder* was a process of this boot and PID namespace and has ended; False for any other one."""
    # In another boot or namespace the same process id is somebody else's.
    if not holder.boot or (holder.boot, holder.space) != _system() or holder.pid <= 0:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    # It exists, under another user.
    except PermissionError:
        return False
    return _is_zombie(holder.pid)


def _is_zombie(pid: int) -> bool:
    """Say whether a process has ended and only its entry is left, as in a container whose init collects none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    # The name before it may hold any characters, brackets too.
    return stat.rpartition(")")[2].split()[:1] == ["Z"]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _system() -> tuple[str, str]:
    """Return what names the running system and its space of process ids; empty where /proc does not tell."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "", ""
