"""How a module of ours is started where the current folder is not ours."""

import shlex
import sys

STARTER = (
    "import sys; sys.path[:] = [one for one in sys.path if one]; del sys.argv[0]; "
    "import runpy; runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)
"""
`python -m` looks for modules in the current folder first, also for Python's own: it would run a `random.py`
that lies there. Python's own option against that (-P) came with 3.11, and its variable would pass to the job.
"""


def command(module: str, *words: str) -> list[str]:
    """Return the command that runs *module* with these words, and imports nothing from the current folder."""
    return [sys.executable, "-c", STARTER, module, *words]


def shell_command(module: str) -> str:
    """Return the beginning of `command` for a shell."""
    return shlex.join(command(module))
