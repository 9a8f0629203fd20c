"""Names of the machine folder."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Dict


@dataclass(frozen=True)
class Layout:
    """Name every file of the machine folder *root*."""

    root: Path

    @property
    def bundles(self) -> Path:
        """Return the folder of unpacked bundles."""
        return self.root / "bundle"

    @property
    def current(self) -> Path:
        """Return the link to the bundle in use."""
        return self.root / "current"

    @property
    def checkpoints(self) -> Path:
        """Return the default folder of local checkpoints."""
        return self.root / "checkpoints"

    @property
    def quarantine(self) -> Path:
        """Return the folder to which doubtful checkpoints are moved."""
        return self.root / "quarantine"

    @property
    def log(self) -> Path:
        """Return the log of the job."""
        return self.root / "log" / "job.log"

    @property
    def status(self) -> Path:
        """Return the copy of the last heartbeat."""
        return self.root / "state" / "status.json"

    @property
    def stop(self) -> Path:
        """Return the file whose presence means "do not start"; it holds the reason."""
        return self.root / "state" / "stop"

    @property
    def pid(self) -> Path:
        """Return the file that names the running agent."""
        return self.root / "state" / "agent.pid"

    @property
    def job(self) -> Path:
        """Return the record of the last start of the job."""
        return self.root / "state" / "job.json"

    @property
    def expire(self) -> Path:
        """Return what the dead-man timer remembers between two minutes."""
        return self.root / "state" / "expire.json"

    @property
    def progress(self) -> Path:
        """Return the file in which the job may report its step."""
        return self.root / "state" / "progress.json"

    @property
    def save_every(self) -> Path:
        """Return the file that tells the job how many seconds shall lie between two saves."""
        return self.root / "state" / "save-every"

    @property
    def data(self) -> Path:
        """Return the folder of the job's data, in a folder for each name of `job.data`."""
        return self.root / "data"

    @property
    def data_state(self) -> Path:
        """Return what is known of the files that were brought there."""
        return self.root / "state" / "data.json"

    def setup_done(self, bundle: str) -> Path:
        """Return the mark that the setup command of *bundle* has succeeded here."""
        return self.root / "state" / f"setup-{bundle}"

    def make(self) -> None:
        """Make the folders that the agent writes to."""
        for folder in (self.bundles, self.log.parent, self.status.parent):
            folder.mkdir(parents=True, exist_ok=True)


def read_json(path: Path) -> Dict[str, Any]:
    """Return the JSON object in *path*; empty when the file is missing or is not a JSON object."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}
