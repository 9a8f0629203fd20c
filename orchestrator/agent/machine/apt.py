"""
Wrap `apt-get` and `apt` for setup and job: wait while another process updates the package lists.

New machines do that after boot. apt's own DPkg::Lock::Timeout, which the startup script sets, covers dpkg's
lock only (docs/facts.md 5.5).
"""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Callable, Mapping, Sequence

from orchestrator.agent.layout import Layout, install_starter
from orchestrator.contract.backoff import polled
from orchestrator.contract.machine_errors import AgentError

COMMANDS = ("apt-get", "apt")
LOCK_TIMEOUT = 600.0
"""Seconds to wait; then apt runs in any case and reports who holds the lock."""
PAUSE = 1.0
"""Seconds between two checks of the lock, which the image's own updates hold for minutes."""
USUAL = "/var/lib/apt/lists/"


def install_commands(folder: Path, agent: Path, environ: Mapping[str, str]) -> None:
    """Write a wrapper for each of the two commands that the machine has. Raise OSError."""
    for name in COMMANDS:
        # The image may have no apt at all.
        if _real(name, folder, environ) is None:
            continue
        about = "Wait until no process updates the lists of packages, then become the real program. Made by tpuctl."
        install_starter(folder / name, about, sys.executable, "-E", str(agent), "apt", name)


def main(
    words: Sequence[str],
    environ: Mapping[str, str],
    layout: Layout,
    wait: Callable[[float], object],
    clock: Callable[[], float],
) -> int:
    """Wait for the lock of the package lists, then replace this process by the program. Raise AgentError."""
    name, arguments = words[0], list(words[1:])
    real = _real(name, layout.programs, environ)
    if real is None:
        raise AgentError(f"{name} is not on this machine")
    lock = _lists(real, environ) / "lock"
    if _taken(lock):
        print(f"{name}: waiting for {lock}, which another program holds", file=sys.stderr, flush=True)
        polled(lambda: not _taken(lock), PAUSE, now=clock, wait=wait, timeout=LOCK_TIMEOUT, longest=PAUSE)
    try:
        # If another process takes the lock after the check, apt itself reports that.
        os.execve(real, [name, *arguments], dict(environ))  # noqa: S606 (no shell is wanted)
    except OSError as error:
        raise AgentError(f"{name} cannot be started: {error.strerror}") from error


def _real(name: str, ours: Path, environ: Mapping[str, str]) -> "str | None":
    folders = (environ.get("PATH") or os.defpath).split(os.pathsep)
    return shutil.which(name, path=os.pathsep.join(one for one in folders if one and Path(one) != ours))


def _lists(real: str, environ: Mapping[str, str]) -> Path:
    """Return the folder of the package lists from apt's configuration."""
    folders = os.pathsep.join([str(Path(real).parent), environ.get("PATH") or os.defpath])
    config = shutil.which("apt-config", path=folders)
    said = ""
    if config is not None:
        try:
            words = [config, "shell", "D", "Dir::State::Lists/d"]
            said = subprocess.run(
                words, stdout=subprocess.PIPE, env=dict(environ), check=True
            ).stdout.decode()
        except (OSError, subprocess.CalledProcessError):
            said = ""
    found = [word[2:] for word in shlex.split(said) if word.startswith("D=")]
    return Path(found[0] if found and found[0] else USUAL)


def _taken(lock: Path) -> bool:
    """Return whether another process holds the lock; False if we may not check."""
    try:
        # apt locks with fcntl(2), which is independent of flock(2) and needs a file that is open for writing.
        with lock.open("r+b") as file:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
