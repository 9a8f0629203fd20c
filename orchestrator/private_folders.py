"""Folders and files of this user's alone."""

import os
from contextlib import suppress
from pathlib import Path

from orchestrator.contract.trusted_folder import why_untrusted
from orchestrator.errors import UsageError


def private_folder(path: Path) -> None:
    """
    Make a folder, and what is missing above it, for its owner only, whatever the umask. Raises OSError.

    Who may write to a folder above may put another one in its place, with settings that run as its user.
    """
    if path.is_dir():
        return
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        with suppress(FileExistsError):
            one.mkdir(mode=0o700)
    # Raises what is wrong, such as a file in its place.
    path.mkdir(exist_ok=True)


def private_file(path: Path, content: bytes) -> None:
    """
    Replace *path* in one step by a file for its owner only, whatever the umask. Raises OSError.

    Nothing is synced: a killed process leaves the old file or the new one, a loss of power may leave neither.
    """
    fresh = path.with_name(f"{path.name}.new")
    fresh.unlink(missing_ok=True)
    # The mode counts from the first byte on: a file closed to others later may have been read before.
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
    fresh.replace(path)


def own_folder(path: Path, other: str = "") -> Path:
    """
    Return *path*; raise UsageError where another user may put in what is then run or believed.

    *other* says how another folder is chosen. What is not there yet may be.
    """
    if why := why_untrusted(path):
        _, _, open_to_all = why.partition("may write ")
        mend = f"chmod o-w {open_to_all}" if open_to_all else "choose a folder of yours"
        raise UsageError(
            f"tpuctl would run and trust files in {path}, but {why}",
            hint=f"check its content, then: {mend}" + (f"; or {other}" if other else ""),
            changed="Nothing of it was read, and nothing was changed.",
            code="TPU-145",
        )
    return path
