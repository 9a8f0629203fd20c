"""Names of the machine folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Dict

from orchestrator.contract.json_values import json_object
from orchestrator.contract.replacing import write_atomically


class Layout:
    """Name every file of the machine folder *root*."""

    def __init__(self, root: Path) -> None:
        state = root / "state"
        self.root = root
        self.bundles = root / "bundle"  # unpacked, each under its sha256
        self.current = root / "current"  # a link to the bundle in use
        self.programs = root / "bin"  # first in the PATH of setup and job
        self.checkpoints = root / "checkpoints"  # unless the deployment file names another folder
        self.quarantine = root / "quarantine"  # where doubtful checkpoints are moved
        self.data = root / "data"  # a folder for each name of `job.data`
        self.log = root / "log" / "job.log"
        self.status = state / "status.json"  # a copy of the last heartbeat
        self.stop = state / "stop"  # while it is there, cron starts no agent; it holds the reason
        self.pid = state / "agent.pid"
        self.job = state / "job.json"  # the record of the last start of the job
        self.expire = state / "expire.json"  # what the dead-man timer remembers between two minutes
        self.progress = state / "progress.json"  # where the job may report its step
        self.save_every = state / "save-every"  # the seconds between two saves, for the job to read
        self.data_state = state / "data.json"  # which files of the data are proven

    def setup_done(self, bundle: str) -> Path:
        """Return the mark that the setup command of *bundle* has succeeded here."""
        return self.status.with_name(f"setup-{bundle}")

    def make(self) -> None:
        """Make the folders that the agent writes to."""
        for folder in (self.bundles, self.log.parent, self.status.parent):
            folder.mkdir(parents=True, exist_ok=True)


def install_script(target: Path, text: str) -> None:
    """Put a program of ours into the folder of programs, if it is not there as it shall be. Raises OSError."""
    # Written only when it changes: the job may be running it.
    if not target.exists() or target.read_text(encoding="utf-8") != text:
        write_atomically(target, text)
        target.chmod(0o755)


def read_json(path: Path) -> Dict[str, Any]:
    """Return the JSON object in *path*; empty when the file is missing or is not a JSON object."""
    return json_object(path) or {}
