"""Note on this computer that a loop lives while a `push` has the lease, so that `status` advises no second one."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from orchestrator.domain.lease import EXPIRES_AFTER, Holder
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import DiskError

PAUSED_HERE = "paused.json"
"""Name of the note in the deployment's folder."""


def note_paused(folder: Path, loop: Holder, now: float) -> None:
    """Note that *loop* lives, as of *now*, in seconds since the epoch."""
    with suppress(DiskError):
        write_private(folder / PAUSED_HERE, replace(loop, since=now).to_json())


def forget_paused(folder: Path) -> None:
    """Delete the note: the loop has ended, or has the lease again."""
    with suppress(OSError):
        (folder / PAUSED_HERE).unlink(missing_ok=True)


def paused_here(folder: Path, now: float, process_ended: Callable[[Holder], bool]) -> Holder | None:
    """Return the loop that waits for a push; its `since` is the time of the note. None without one that lives."""
    try:
        loop = Holder.from_json((folder / PAUSED_HERE).read_bytes())
    except (OSError, ValueError):
        return None
    # A killed loop leaves its note behind.
    return None if process_ended(loop) or not 0 <= now - loop.since < EXPIRES_AFTER else loop
