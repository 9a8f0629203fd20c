"""Lock a deployment against a second tpuctl on this computer."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock, Timeout

from orchestrator.app.this_computer.holder import wake_process
from orchestrator.domain.lease import PUSH, YIELD_TIMEOUT, Holder
from orchestrator.errors import LeaseHeldError
from orchestrator.private_folders import private_folder


@contextmanager
def only_here(folder: Path, me: Holder, wish: Callable[[], None]) -> Iterator[None]:
    """
    Hold the lock of the deployment while the block runs.

    If the holder yields to this command, call *wish*, which asks for the lock, and wait. Raise
    LeaseHeldError.
    """
    private_folder(folder)
    # Per process, not per thread: a process that watches many deployments releases it from another thread.
    note, lock = folder / "holder", FileLock(folder / "lock", thread_local=False)
    try:
        # The system releases it when the process dies, so a killed command needs no clean-up.
        lock.acquire(timeout=0)
    except Timeout:
        holder = _last_holder(folder)
        # A yielding holder looks for wishes in the bucket only, where those of other computers are, too.
        if me.command not in holder.yields:
            raise _busy(holder) from None
        wish()
        wake_process(holder)
        try:
            lock.acquire(timeout=YIELD_TIMEOUT)
        except Timeout:
            raise _busy(holder) from None
    try:
        with suppress(OSError):  # The lock alone protects; the note only names its holder.
            note.write_bytes(me.to_json())
        yield
    finally:
        lock.release()


def refuse_if_busy(folder: Path, me: Holder) -> None:
    """Raise LeaseHeldError if a process of this computer has the lock and does not yield to *me*; hold nothing."""
    private_folder(folder)
    try:
        with FileLock(folder / "lock", timeout=0, thread_local=False):
            return
    except Timeout:
        holder = _last_holder(folder)
        if me.command not in holder.yields:
            raise _busy(holder) from None


def _last_holder(folder: Path) -> Holder:
    """Return who has written last that it holds the lock: after a Timeout that may be the previous holder."""
    note = folder / "holder"
    return Holder.from_json(note.read_bytes() if note.exists() else b"")


def _busy(holder: Holder) -> LeaseHeldError:
    # A watch keeps the settings that it began with, so it yields to new code and not to a new file.
    code = "; for new code: `tpuctl push`, to which it yields" if PUSH in holder.yields else ""
    return LeaseHeldError(
        f"{holder.called}, process {holder.pid}, is working on this deployment",
        hint=f"wait for it or stop it with Ctrl-C; then run the same command again{code}",
        changed="nothing was changed",
    )
