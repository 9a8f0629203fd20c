"""Create folders and files that only their owner may read."""

from contextlib import suppress
from pathlib import Path

from orchestrator.contract.replacing import replacing
from orchestrator.contract.trusted_folder import untrusted
from orchestrator.errors import UsageError


def private_folder(path: Path) -> None:
    """
    Create a folder and its missing parents with mode 0700, whatever the umask. Raise OSError.

    Whoever may write to a parent could replace the folder by one with settings that run as this user.
    """
    if path.is_dir():
        return
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        with suppress(FileExistsError):
            one.mkdir(mode=0o700)
    # Raises if something else is there, such as a file.
    path.mkdir(exist_ok=True)


def private_file(path: Path, content: bytes) -> None:
    """
    Replace *path* atomically by a file with mode 0600. Raise OSError.

    Nothing is synced: after a kill the file is the old or the new one; after a power loss it may be neither.
    """
    with replacing(path, 0o600, synced=False) as file:
        file.write(content)


def own_folder(path: Path, other: str = "") -> Path:
    """
    Return *path*. Raise UsageError if another user may write to it: its files are executed or trusted.

    *other* says how to choose another folder. A folder that does not exist yet is accepted.
    """
    if others := untrusted(path):
        mend = f"chmod o-w {others.path}" if others.owner is None else "choose a folder of yours"
        raise UsageError(
            f"tpuctl would run and trust files in {path}, but {others.message}",
            hint=f"check its content, then: {mend}" + (f"; or {other}" if other else ""),
            changed="nothing of it was read, and nothing was changed",
            code="TPU-145",
        )
    return path
