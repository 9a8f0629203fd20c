"""Find out which other users may put files into a folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import FrozenSet, List, NamedTuple, Optional


def users() -> FrozenSet[int]:
    """Return the ids of this user, of root, and of the user who became root with sudo."""
    sudo = os.environ.get("SUDO_UID", "")
    asked = {int(sudo)} if os.geteuid() == 0 and sudo.isdigit() else set()
    return frozenset({os.geteuid(), 0, *asked})


class Untrusted(NamedTuple):
    """The file or folder that another user may change, and its owner; None: every user may write to it."""

    path: Path
    owner: Optional[int]

    @property
    def message(self) -> str:
        """Return a clause that says who may write to *path*."""
        if self.owner is None:
            return "every user of this computer may write %s" % self.path
        return "%s belongs to another user (uid %d)" % (self.path, self.owner)


def untrusted(folder: Path) -> Optional[Untrusted]:
    """
    Return what lets another user write into *folder* or replace it, None if nothing does.

    It need not exist yet. Members of a group are trusted with what the group may write, and so are owners of
    folders above it, except in a folder that everyone may write to, where only the sticky bit protects files.
    """
    for path in dict.fromkeys([folder.absolute(), folder.resolve()]):
        found = _from_above(path)
        if found:
            return found
    return None


def _from_above(path: Path) -> Optional[Untrusted]:
    for_all = False
    chain: List[Path] = [*reversed(path.parents), path]
    for one in chain:
        try:
            # Each part of the path is checked, links too: a folder above can be replaced with everything below it.
            found = one.lstat()
        except OSError:
            return None  # a missing folder is created by us, or not at all
        if found.st_uid not in users() and (for_all or one == path):
            return Untrusted(one, found.st_uid)
        # A link has no permissions of its own; its target is checked as a part of the other chain.
        if stat.S_ISLNK(found.st_mode):
            for_all = False
            continue
        for_all = bool(found.st_mode & stat.S_IWOTH)
        if for_all and (one == path or not found.st_mode & stat.S_ISVTX):
            return Untrusted(one, None)
    return None
