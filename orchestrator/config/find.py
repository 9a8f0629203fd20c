"""
Find the deployment file; light, because `tpuctl status` does so before anything else is imported.
"""

import os
import stat
from pathlib import Path

from orchestrator.errors import UsageError

FILE_NAME = "tpuctl.yaml"


def find(start: Path) -> Path:
    """
    Return the deployment file in *start* or the nearest folder above it.

    Raise UsageError when there is none, and for one that another user owns or can replace: its hooks and
    commands would run as whoever calls. A file that is named with --file is not looked at like this.
    """
    folder = start.absolute()
    for place in (folder, *folder.parents):
        if (place / FILE_NAME).is_file():
            _trust(place / FILE_NAME)
            return place / FILE_NAME
    raise UsageError(
        f"no {FILE_NAME} in {folder} or any folder above it",
        hint="write one with: tpuctl init",
        unchanged="Nothing was changed.",
        code="TPU-111",
    )


def _trust(file: Path) -> None:
    """
    Raise UsageError unless the file and its folder belong to this user or root, and not all may write there.

    Links are judged where they stand and where they lead. In a folder with the sticky bit nobody can replace
    the file of another user. Members of a group are trusted with what the group may write.
    """
    real = file.resolve()
    for path in dict.fromkeys((file, real, file.parent, real.parent)):
        found = path.lstat()
        folder = stat.S_ISDIR(found.st_mode)
        if not folder and found.st_uid not in _users():
            raise _refusal(
                file, f"{path} belongs to another user (uid {found.st_uid})", "copy it to a folder of yours"
            )
        if stat.S_ISLNK(found.st_mode):
            continue
        if found.st_mode & stat.S_IWOTH and not (folder and found.st_mode & stat.S_ISVTX):
            raise _refusal(file, f"every user of this computer may write {path}", f"chmod o-w {path}")


def _users() -> frozenset[int]:
    """
    Return this user and root, and who has become root with sudo.
    """
    sudo = os.environ.get("SUDO_UID", "")
    asked = {int(sudo)} if os.geteuid() == 0 and sudo.isdecimal() else set()
    return frozenset({os.geteuid(), 0, *asked})


def _refusal(file: Path, why: str, hint: str) -> UsageError:
    return UsageError(
        f"{file} was found, but {why}: what it asks for would run as you",
        hint=f"{hint}; or, if you trust it: --file {file}",
        unchanged="The file was not read, and nothing was changed.",
        code="TPU-143",
    )
