"""Observe all deployments that this computer has brought up."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import threads
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session
from orchestrator.app.status.status import newest
from orchestrator.app.status.text import checkpoint_text, job_text
from orchestrator.app.this_computer.known import spec_in
from orchestrator.app.this_computer.state_folders import known_files
from orchestrator.domain.status import DeploymentStatus
from orchestrator.errors import TpuctlError
from orchestrator.google.shared_lists import ZoneLists

AT_ONCE = 8
"""Deployments observed in parallel."""
FRESH = 3.0
"""Seconds for which a zone's list is shared; less than the time between two observations."""
FIELDS = ("state", "outcome", "tpu", "job", "checkpoint_message", "preemptions", "usd", "source")


@dataclass(frozen=True)
class DeploymentRow:
    """The last *status* of a deployment; None if a *message* says what prevented it."""

    name: str
    project: str
    status: DeploymentStatus | None
    message: str = ""

    @property
    def tpu(self) -> str:
        """Return the states of its TPUs, "" without a status."""
        rows = self.status.resources if self.status else ()
        return ", ".join(dict.fromkeys(row.state for row in rows if row.kind == "tpu"))

    @property
    def word(self) -> str:
        """Return what a person reads first: the message, or the deployment's state."""
        return self.message or (self.status.state.phrase if self.status else "")

    def as_dict(self) -> dict[str, Any]:
        """Return the row as `status --all --json` prints it."""
        row = {"name": self.name, "project": self.project}
        if self.status is None:
            return {**row, **dict.fromkeys(FIELDS), "message": self.message}
        texts = {
            "tpu": self.tpu,
            "job": job_text(self.status),
            "checkpoint_message": checkpoint_text(self.status),
        }
        body = {**self.status.as_dict(), **texts}
        return {**row, **{key: body[key] for key in FIELDS}, "message": self.message}


class Deployments:
    """
    Observes all known deployments; opened sessions are reused.

    They share the lists of zones, so each zone is listed once per observation.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._sessions: dict[Path, Session] = {}
        self._lists = ZoneLists(FRESH)
        self.details: dict[tuple[str, str], DeploymentStatus] = {}
        """The last status of each deployment, by project and name."""

    def rows(self) -> list[DeploymentRow]:
        """Return a row for each deployment."""
        # In parallel, since each mostly waits for the network.
        with threads.pool(AT_ONCE) as pool:
            return list(pool.map(self._row, known_files(self._choice.cloud)))

    def _row(self, path: Path) -> DeploymentRow:
        name, project = path.parent.name, path.parent.parent.name
        try:
            body = newest(self._session(path))
        except TpuctlError as error:
            return DeploymentRow(name, project, None, error.message)
        self.details[project, name] = body
        return DeploymentRow(name, project, body)

    def _session(self, path: Path) -> Session:
        if path not in self._sessions:
            spec = spec_in(path)
            # Threads share this dictionary, but each uses a different key.
            self._sessions[path] = Session(
                self._choice, Reporter(), spec, only_observes=True, lists=self._lists
            )
        return self._sessions[path]
