"""The lock that keeps a second tpuctl of this computer off a deployment."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.domain.lease import Holder
from orchestrator.engine.lease_object import YIELD_SECONDS
from orchestrator.errors import LeaseHeldError
from orchestrator.private_folders import private_folder


@contextmanager
def only_here(folder: Path, me: Holder, wish: Callable[[], None]) -> Iterator[None]:
    """
    Keep a second tpuctl of this computer off the deployment while the block runs.

    A holder that yields to our command is asked by *wish*, and waited for.
    """
    private_folder(folder)
    # Of the process, not of a thread: whoever watches many deployments ends them in another one.
    note, lock = folder / "holder", FileLock(folder / "lock", thread_local=False)
    try:
        # The system frees it when its process dies, so a killed command never has to be cleaned up after.
        lock.acquire(timeout=0)
    except Timeout:
        # The note may be of the holder before: it is written after the lock is taken, and only shown.
        holder = Holder.from_json(note.read_bytes() if note.exists() else b"")
        # A holder that steps aside looks for wishes in the bucket only, since most come from other computers.
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
