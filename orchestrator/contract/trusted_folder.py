"""Who besides its user may put something into a folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import FrozenSet, List


def users() -> FrozenSet[int]:
    """Return this user and root, and who has become root with sudo."""
    sudo = os.environ.get("SUDO_UID", "")
    asked = {int(sudo)} if os.geteuid() == 0 and sudo.isdigit() else set()
    return frozenset({os.geteuid(), 0, *asked})


def why_untrusted(folder: Path) -> str:
    """
    Return why another user may put things into *folder*, or another one in its place; empty when none may.

    It need not be there yet. Members of a group are trusted with what the group may write, and so are owners
    of folders above, unless those lie in one for all. There the sticky bit keeps what is a user's own.
    """
    for path in dict.fromkeys([folder.absolute(), folder.resolve()]):
        why = _from_above(path)
        if why:
            return why
    return ""


def _from_above(path: Path) -> str:
    for_all = False
    chain: List[Path] = [*reversed(path.parents), path]
    for one in chain:
        try:
            # Each part of the path for itself, links too: who can replace a folder above can replace
            # everything below.
            found = one.lstat()
        except OSError:
            return ""  # what is not there is made by us, or not at all
        if found.st_uid not in users() and (for_all or one == path):
            return "%s belongs to another user (uid %d)" % (one, found.st_uid)
        # A link has no permissions of its own; its target is in the other chain.
        if stat.S_ISLNK(found.st_mode):
            for_all = False
            continue
        for_all = bool(found.st_mode & stat.S_IWOTH)
        if for_all and (one == path or not found.st_mode & stat.S_ISVTX):
            return "every user of this computer may write %s" % one
    return ""
