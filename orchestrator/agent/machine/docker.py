"""Run the machine's docker, and remove containers that an earlier agent has left."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Mapping, Sequence

from orchestrator.agent.layout import Layout
from orchestrator.agent.side_threads import say
from orchestrator.contract.machine_errors import AgentError

LABEL = "tpuctl.root"
"""The label of our containers, with the machine folder as its value; no other container is touched."""
TIMEOUT = 120.0
"""Seconds for a command of docker that moves no image."""


def remove(root: Path) -> None:
    """
    Remove the containers of this machine folder, running or not; fast if there never was one.

    Failures are printed, not raised: `processes` finds every living process of a job anyway, and docker
    refuses a second container of the same name.
    """
    layout = Layout(root)
    mark = mark_of(layout)
    if not mark.exists():
        return
    try:
        asked = ["ps", "--all", "--quiet", "--no-trunc", f"--filter=label={LABEL}={root}"]
        found = docker(asked, os.environ).split()
        if found:
            docker(["rm", "--force", *found], os.environ)
        # After the removal: a kill before this line makes the next agent check again.
        mark.unlink()
    except (AgentError, OSError) as error:
        say(f"containers of the job cannot be removed: {error}")


def ended(code: int) -> int:
    """Convert a container's exit status to that of a process: negative for a signal."""
    try:
        return -signal.Signals(code - 128)
    except ValueError:
        return code


def mark_of(layout: Layout) -> Path:
    """Return the file that exists while this machine may have a container of ours."""
    return layout.status.with_name("container.json")


def docker(words: Sequence[str], environ: Mapping[str, str], timeout: float = TIMEOUT) -> str:
    """Run docker and return its output. Raise AgentError with the end of its error output."""
    # Without the job's mark, since processes with that mark are killed.
    own = {name: value for name, value in environ.items() if name != "TPUCTL_JOB"}
    try:
        done = subprocess.run(
            ["docker", *words],
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=timeout,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgentError(f"docker {words[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise AgentError(f"docker {words[0]}: {said[-1][:300]}")
    return done.stdout.decode("utf-8", "replace")
