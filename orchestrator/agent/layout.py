"""Name the files of the machine folder."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any, Dict

from orchestrator.contract.json_values import json_object
from orchestrator.contract.replacing import write_atomically


class Layout:
    """The paths of all files in the machine folder *root*."""

    def __init__(self, root: Path) -> None:
        state = root / "state"
        self.root = root
        self.bundles = root / "bundle"  # unpacked, each under its sha256
        self.current = root / "current"  # symlink to the bundle in use
        self.programs = root / "bin"  # first in the PATH of setup and job
        self.checkpoints = root / "checkpoints"  # unless the deployment file names another folder
        self.quarantine = root / "quarantine"  # for doubtful checkpoints
        self.data = root / "data"  # one folder for each name of `job.data`
        self.log = root / "log" / "job.log"
        self.status = state / "status.json"  # a copy of the last heartbeat
        self.stop = state / "stop"  # holds a reason; while it exists, cron does not start the agent
        self.pid = state / "agent.pid"
        self.job = state / "job.json"  # the record of the job's last attempt
        self.self_delete = (
            state / "self-delete.json"
        )  # what `machine/self_delete.py` remembers between two runs
        self.progress = state / "progress.json"  # where the job may write its step
        self.save_interval = state / "save-every"  # the save interval in seconds, read by the job
        self.data_state = state / "data.json"  # which data files are verified

    def setup_done(self, bundle: str) -> Path:
        """Return the file that names the command of the last successful setup of *bundle* on this machine."""
        return self.status.with_name(f"setup-{bundle}")

    def make(self) -> None:
        """Create the folders that the agent writes to."""
        for folder in (self.bundles, self.log.parent, self.status.parent):
            folder.mkdir(parents=True, exist_ok=True)


def install_script(target: Path, text: str) -> None:
    """Write an own program to the folder of programs, if its content differs. Raise OSError."""
    # Only if it differs, since the job may be running it.
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        write_atomically(target, text)
        target.chmod(0o755)


def install_starter(target: Path, about: str, *words: str) -> None:
    """Write a program, with *about* as its comment, that runs *words* and its own arguments. Raise OSError."""
    start = " ".join(map(shlex.quote, words))
    install_script(target, f'#!/bin/sh\n# {about}\nexec {start} "$@"\n')


def read_json(path: Path) -> Dict[str, Any]:
    """Return the JSON object in *path*; empty when the file is missing or is not a JSON object."""
    return json_object(path) or {}
