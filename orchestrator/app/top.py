"""Observe all deployments that this computer has brought up."""

from pathlib import Path
from typing import Any

from orchestrator import threads
from orchestrator.app.choice import Choice
from orchestrator.app.known import spec_in
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.app.state_folders import known_files
from orchestrator.app.status import newest
from orchestrator.app.status_text import checkpoint_text, job_text
from orchestrator.config.find import find
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.google.shared_lists import ZoneLists

AT_ONCE = 8
"""Deployments observed in parallel."""
FRESH = 3.0
"""Seconds for which a zone's list is shared; less than the time between two observations."""
FIELDS = ("outcome", "tpu", "job", "checkpoint", "preemptions", "cost_usd", "seen")


def means_all(choice: Choice) -> bool:
    """Return whether to show all deployments: none is named, no file is here, and some are known."""
    if choice.file is not None or choice.settings:
        return False
    try:
        find(Path.cwd())
    except UsageError:
        return bool(known_files(choice.cloud))
    return False


class Deployments:
    """
    Observes all known deployments; opened sessions are reused.

    They share the lists of zones, so each zone is listed once per observation.
    """

    def __init__(self, choice: Choice) -> None:
        self._choice = choice
        self._sessions: dict[Path, Session] = {}
        self._lists = ZoneLists(FRESH)
        self.details: dict[tuple[str, str], dict[str, Any]] = {}
        """The last status of each deployment, by project and name."""

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each deployment; *problem* holds the reason if it could not be observed."""
        # In parallel, since each mostly waits for the network.
        with threads.pool(AT_ONCE) as pool:
            return list(pool.map(self._row, known_files(self._choice.cloud)))

    def _row(self, path: Path) -> dict[str, Any]:
        row: dict[str, Any] = {"name": path.parent.name, "project": path.parent.parent.name}
        try:
            body = newest(self._session(path))
            self.details[row["project"], row["name"]] = body
        except TpuctlError as error:
            return {**row, **dict.fromkeys(FIELDS), "problem": error.message}
        tpus = [resource["state"] for resource in body["resources"] if resource["kind"] == "TPU"]
        texts = {
            "tpu": ", ".join(dict.fromkeys(tpus)), "job": job_text(body), "checkpoint": checkpoint_text(body)
        }  # fmt: skip
        return {**row, **{key: texts.get(key, body.get(key)) for key in FIELDS}, "problem": ""}

    def _session(self, path: Path) -> Session:
        if path not in self._sessions:
            spec = spec_in(path)
            # Threads share this dictionary, but each uses a different key.
            self._sessions[path] = Session(self._choice, Reporter(), spec, only_looks=True, lists=self._lists)
        return self._sessions[path]
