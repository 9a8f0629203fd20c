"""Make the command line that runs a script on a machine: as the login user, or as root where that is needed."""

import shlex

from orchestrator.domain.remote_script import RemoteScript
from orchestrator.scripts.shipped import shipped


def elevated(script: RemoteScript, root: str) -> str:
    """
    Return the command that runs *script* with the rights that the machine folder needs.

    It runs as the login user where the folder is writable, else through `sudo -n`. *root* is the folder of a
    machine that names none.
    """
    return _bash(script, shipped("remote/elevate.sh").decode(), root, script.bash())


def as_login(script: RemoteScript, root: str) -> str:
    """Return the command that runs *script* as the login user; its `$1` is *root*, whatever the machine says."""
    return _bash(script, script.bash(), root)


def _bash(script: RemoteScript, text: str, *arguments: str) -> str:
    # Without --norc each bash under sshd reads ~/.bashrc again, which may be slow and may print.
    return shlex.join(["bash", "--norc", "-c", text, f"tpuctl-{script.name}", *arguments])
