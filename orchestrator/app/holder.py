"""This process as the holder of a lease, and the lock that keeps a second one of this computer away."""

import getpass
import os
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.domain.lease import Holder
from orchestrator.errors import LeaseHeldError
from orchestrator.private_folders import private_folder


def this_process(command: str, now: float, yields: tuple[str, ...] = ()) -> Holder:
    """Return this process as a holder."""
    who = f"{_user()}@{socket.gethostname()}"
    boot, space = _system()
    return Holder(uuid.uuid4().hex, who, command, now, os.getpid(), boot, space, yields)


def gone(holder: Holder) -> bool:
    """Say whether *holder* was a process of this running system and is no more; elsewhere nobody can tell."""
    if not holder.boot or (holder.boot, holder.space) != _system() or holder.pid <= 0:
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@contextmanager
def only_here(folder: Path, me: Holder, wish: Callable[[], None]) -> Iterator[None]:
    """
    Keep a second tpuctl of this computer off the deployment while the block runs.

    A holder that yields to our command is asked by *wish*, and waited for.
    """
    from filelock import FileLock, Timeout

    from orchestrator.engine.lease_object import YIELD_SECONDS

    private_folder(folder)
    note, lock = folder / "holder", FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        holder = Holder.from_json(note.read_bytes() if note.exists() else b"")
        if me.command not in holder.yields:
            raise _busy(holder) from None
        wish()
        try:
            lock.acquire(timeout=YIELD_SECONDS)
        except Timeout:
            raise _busy(holder) from None
    try:
        with suppress(OSError):  # The lock keeps others off; the note only tells them whose it is.
            note.write_bytes(me.to_json())
        yield
    finally:
        lock.release()


def _busy(holder: Holder) -> LeaseHeldError:
    return LeaseHeldError(
        f"tpuctl {holder.command} of {holder.who}, process {holder.pid}, is working on this deployment",
        hint="wait for it or stop it with Ctrl-C; then run the same command again",
        changed="nothing was changed",
    )


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
