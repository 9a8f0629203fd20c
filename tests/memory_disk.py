"""Where worlds of tests keep their files: in memory, where a small file takes a tenth of the time."""

import os
import shutil

PLACE = "/dev/shm"
ROOM = 1 << 30
"""Bytes that must be free there; in a container it is often too small."""


def _has_room():
    return os.access(PLACE, os.W_OK) and shutil.disk_usage(PLACE).free >= ROOM


MEMORY = PLACE if _has_room() else None
"""A folder for `tempfile`; None is its own choice."""
