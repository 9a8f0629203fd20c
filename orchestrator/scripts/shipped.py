"""Find the scripts in templates/ that are sent as they stand; those with values in them are in render.py."""

import functools
from pathlib import Path

from orchestrator.domain.remote_script import MachinePath, RemoteScript

_PACKAGE = Path(__file__).resolve().parents[1]
TEMPLATES = (_PACKAGE / "templates", _PACKAGE.parent / "templates")
"""Where templates lie: in the wheel's package, or beside it in a checkout."""


@functools.cache
def shipped(name: str) -> bytes:
    """Return a file of templates/."""
    places = (folder / name for folder in TEMPLATES)
    return next(place for place in places if place.exists()).read_bytes()


def remote_script(name: str, *arguments: str | MachinePath) -> RemoteScript:
    """Return the script templates/remote/NAME.sh, to be run with *arguments*."""
    return RemoteScript(name, shipped(f"remote/{name}.sh").decode(), arguments)


def begin_script(*, restart: bool) -> RemoteScript:
    """Return the script that starts the job; with *restart* it stops a running one first."""
    return remote_script("begin-job", *(("--restart",) if restart else ()))
