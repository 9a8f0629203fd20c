"""
Folders of this user's alone.
"""

from contextlib import suppress
from pathlib import Path


def private_folder(path: Path) -> None:
    """
    Make a folder, and what is missing above it, for its owner only, whatever the umask. Raises OSError.

    Who may write to a folder above may put another one in its place, with settings that run as its user.
    """
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        with suppress(FileExistsError):
            one.mkdir(mode=0o700)
    # Raises what is wrong, such as a file in its place.
    path.mkdir(exist_ok=True)
