"""Find the deployment file. Imports little, because `tpuctl status` calls it before anything else is loaded."""

from pathlib import Path

from orchestrator.contract.trusted_folder import untrusted, users
from orchestrator.errors import UsageError

FILE_NAME = "tpuctl.yaml"
COPY = "copy it to a folder of yours"


def find(start: Path) -> Path:
    """
    Return the deployment file in *start* or the nearest folder above it.

    Raise UsageError if there is none, or if another user owns it or can replace it: its hooks and commands
    would run as the caller. A file named with --file is not checked.
    """
    folder = start.absolute()
    for place in (folder, *folder.parents):
        if (place / FILE_NAME).is_file():
            _trust(place / FILE_NAME)
            return place / FILE_NAME
    raise UsageError(
        f"no {FILE_NAME} in {folder} or any folder above it",
        hint="write one with: tpuctl init",
        changed="nothing was changed",
        code="TPU-111",
    )


def _trust(file: Path) -> None:
    """
    Raise UsageError unless this user or root owns the file and its folder, and others may not write there.

    Links are checked at both ends. In a folder with the sticky bit only a file's owner and the folder's owner
    can replace the file. Members of a group are trusted with what the group may write.
    """
    if others := untrusted(file):
        raise _refusal(file, others.message, f"chmod o-w {others.path}" if others.owner is None else COPY)
    for folder in dict.fromkeys((file.parent, file.resolve().parent)):
        # The folder too: its owner could put another file in the place of this one.
        if (owner := folder.stat().st_uid) not in users():
            message = f"{folder} belongs to another user (uid {owner}), who may replace it"
            raise _refusal(file, message, COPY)


def _refusal(file: Path, message: str, hint: str) -> UsageError:
    return UsageError(
        f"{file} was found, but {message}: its commands would run as you",
        hint=f"{hint}; or, if you trust it: --file {file}",
        changed="the file was not read, and nothing was changed",
        code="TPU-143",
    )
