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


def shell_command(module: str) -> str:
    """Return the beginning of such a command as shell text."""
    return shlex.join(command(module))


def package_parent() -> str:
    """Return the folder from which `orchestrator` is imported: an installation or a checkout."""
    return str(Path(orchestrator.__path__[0]).resolve().parent)
