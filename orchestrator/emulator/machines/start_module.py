"""Start a module of ours safely in any current folder."""

import shlex
import sys
from pathlib import Path

import orchestrator

STARTER = (
    "import sys; sys.path[:] = [one for one in sys.path if one]; del sys.argv[0]; "
    "import runpy; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""
Python text that removes the current folder from the search path and runs a module.

`python -m` searches that folder first, even for Python's own modules, and would run a `random.py` there.
Python's option against that (-P) exists since 3.11, and its variable would be inherited by the job.
"""


def command(module: str, *words: str) -> list[str]:
    """Return the command that runs *module* with *words* and imports nothing from the current folder."""
    return [sys.executable, "-c", STARTER, module, *words]


def program(module: str, *words: str) -> str:
    """Return a program of a machine that runs *module* of ours with *words* before its own arguments."""
    path, start = shlex.quote(package_parent()), shlex.join(command(module, *words))
    return f'#!/bin/sh\nexport PYTHONPATH={path}\nexec {start} "$@"\n'


def package_parent() -> str:
    """Return the folder from which `orchestrator` is imported: an installation or a checkout."""
    return str(Path(orchestrator.__path__[0]).resolve().parent)
