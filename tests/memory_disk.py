"""Where tests keep their files: in memory, where a small file takes a tenth of the time."""

import os
import shutil

PLACE = "/dev/shm"
ROOM = 1 << 30
"""Bytes that must be free there for the worlds of a simulation; in a container it is often too small."""
ROOM_FOR_ALL = 4 << 30
"""The same for the folders of all tests, some of which hold programs and machines."""


def has_room(wanted=ROOM):
    """Return whether files may be written there, programs among them be run, and so many bytes are free."""
    if not os.access(PLACE, os.W_OK) or os.statvfs(PLACE).f_flag & os.ST_NOEXEC:
        return False
    return shutil.disk_usage(PLACE).free >= wanted


MEMORY = PLACE if has_room() else None
"""A folder for `tempfile`; None is its own choice."""
