"""The machine's docker: its command, and the containers of ours that an earlier agent has left."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path
from typing import Mapping, Sequence

from orchestrator.agent.layout import Layout
from orchestrator.agent.threads import say
from orchestrator.contract.machine_errors import AgentError

LABEL = "tpuctl.root"
"""The label of our containers; its value is the machine folder. No other container is ever touched."""
SECONDS = 120.0


def remove(root: Path) -> None:
    """
    Remove the containers of this machine folder, running or not; quick where there never was one.

    What docker does not do is said, not raised: `processes` sees every living process of a job all the same, and
    docker refuses a second container of the same name.
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
        mark.unlink()
    except (AgentError, OSError) as error:
        say(f"containers of the job cannot be removed: {error}")


def ended(code: int) -> int:
    """Return the exit status of a container as that of a process: negative for a signal."""
    try:
        return -signal.Signals(code - 128)
    except ValueError:
        return code


def mark_of(layout: Layout) -> Path:
    """Return the file that is there while this machine may have a container of ours."""
    return layout.status.with_name("container.json")


def docker(words: Sequence[str], environ: Mapping[str, str], seconds: float = SECONDS) -> str:
    """Return what docker prints. Raises AgentError with its last words."""
    # Without the mark of a job, by which processes of it are found and killed.
    own = {name: value for name, value in environ.items() if name != "TPUCTL_JOB"}
    try:
        done = subprocess.run(
            ["docker", *words],
            env=own,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            timeout=seconds,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AgentError(f"docker {words[0]}: {error}") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise AgentError(f"docker {words[0]}: {said[-1][:300]}")
    return done.stdout.decode("utf-8", "replace")
