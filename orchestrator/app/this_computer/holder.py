"""Describe this process as the holder of a lease, and check whether a holder still lives."""

import getpass
import os
import signal
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.app.context.signals import handled
from orchestrator.domain.lease import Holder

WAKE_SIGNAL = signal.SIGURG
"""Sent to a loop by a command that waits for it; a process that does not handle this signal ignores it."""


def this_process(command: str, now: float, yields: tuple[str, ...] = ()) -> Holder:
    """Return this process as a lease holder."""
    who = f"{_user()}@{socket.gethostname()}"
    boot, space = _system()
    return Holder(uuid.uuid4().hex, who, command, now, os.getpid(), boot, space, yields)


def process_ended(holder: Holder) -> bool:
    """Return whether *holder* was a process of this boot and PID namespace and has ended; else False."""
    # In another boot or PID namespace the same id may belong to another process.
    if not holder.boot or (holder.boot, holder.space) != _system() or holder.pid <= 0:
        return False
    try:
        # Signal 0 sends nothing and only checks that the process exists.
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    # The process exists, under another user.
    except PermissionError:
        return False
    return _is_zombie(holder.pid)


def wake_process(holder: Holder) -> None:
    """Ask a loop on this computer to look for wishes now, not at its next poll."""
    # An id of another boot or namespace would be another process; this signal harms none.
    if holder.pid > 0 and (holder.boot, holder.space) == _system():
        with suppress(OSError):
            os.kill(holder.pid, WAKE_SIGNAL)


@contextmanager
def woken_by_others(wake: threading.Event) -> Iterator[None]:
    """Set *wake* whenever a command on this computer waits for this process."""
    # Python delivers signals to the main thread only, which a program of the user's own may keep for itself.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handled((WAKE_SIGNAL,), lambda *_: wake.set()):
        yield


def _is_zombie(pid: int) -> bool:
    """Return whether a process is a zombie, as in a container whose init does not reap."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    # The name in the field before may contain any characters, parentheses included.
    return stat.rpartition(")")[2].split()[:1] == ["Z"]


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _system() -> tuple[str, str]:
    """Return ids of the running system and of its PID namespace; "" where /proc lacks them."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot, str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "", ""
