"""Collect what a maintainer needs to understand a failed deployment, without changing anything."""

import json
import os
import platform
import re
import stat
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import metadata
from io import BytesIO
from pathlib import Path
from typing import Any

from orchestrator import __version__
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.session import Session, open_session
from orchestrator.app.doctor.diagnose import diagnose
from orchestrator.app.explain import explained
from orchestrator.app.status.status import newest
from orchestrator.app.this_computer.state_folders import bug_prefix
from orchestrator.config.adapter import dump
from orchestrator.contract.secrets.redaction import Redactor
from orchestrator.domain.spec import Spec
from orchestrator.emulator.control import running
from orchestrator.engine.bucket.job_logs import JobLogReader
from orchestrator.engine.publish.event_log import read_events
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.scripts.wheel import requirements

MAX_BYTES = 256 << 10
"""Bytes of one file; only the end of a longer one is kept."""
LINES, EVENTS, BUGS = 200, 500, 3
"""Limits: lines of each worker's log, newest events, newest bug reports."""
MAX_LINE, ALL_LINES = 16 << 10, 32 << 20
"""
Limits in characters: a log line, and all log lines.

Longer lines are left out instead of cut, because half a secret is not recognised.
"""
_SECRET_NAME = re.compile(r"TOKEN|SECRET|PASSW|API_?KEY|ACCESS_?KEY|CREDENTIAL", re.IGNORECASE)
# Whole quoted values, since the text after a blank inside quotes belongs to the secret.
_ASSIGNED = re.compile(r"\b([A-Za-z_][A-Za-z0-9_]*)=('[^']*'|\"[^\"]*\"|\S+)")


@dataclass(frozen=True)
class ArchivedFile:
    """One file of the archive: its name, a description, and its text without secrets."""

    name: str
    what: str
    text: str


@dataclass
class Collection:
    """The files whose content could be read, and the reasons for the others."""

    redactor: Redactor = field(default_factory=Redactor)
    files: list[ArchivedFile] = field(default_factory=list)
    unread: dict[str, str] = field(default_factory=dict)

    def add(self, name: str, what: str, read: Callable[[], Any]) -> None:
        """Add the result of *read*, a text or values for JSON; any failure, even a bug, is recorded."""
        try:
            value = read()
        except Exception as error:  # The archive is made because of a problem, and this may be it.
            code = f" ({error.code})" if isinstance(error, TpuctlError) else f" ({type(error).__name__})"
            self.unread[name] = self.redactor.text(f"{error}{code}")
            return
        text = (
            self.redactor.text(value) if isinstance(value, str) else json.dumps(self._clean(value), indent=1)
        )
        self.files.append(ArchivedFile(name, what, text[-MAX_BYTES:]))

    def _clean(self, value: Any) -> Any:
        """Return JSON values with all of their texts masked, keys included, so that it stays valid JSON."""
        if isinstance(value, str):
            return self.redactor.text(value)
        if isinstance(value, dict):
            return {self.redactor.text(str(key)): self._clean(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self._clean(one) for one in value]
        return value if value is None or isinstance(value, bool | int | float) else self._clean(str(value))


def default_archive() -> Path:
    """Return the archive's path in this folder, named after the present time."""
    return Path(f"tpuctl-support-{time.strftime('%Y%m%d-%H%M%S')}.zip")


def collect(choice: Choice, name: str | None) -> Collection:
    """Collect everything readable about one deployment and this computer."""
    found = Collection()
    # First, as the redactor masks only what it already knows.
    _know_environment(found.redactor)
    session: Session | None = None
    try:
        session = open_session(choice, name, Reporter(), only_observes=True)
        # Before any reading, because an error text may repeat what the file says.
        _know_spec(found.redactor, session.spec)
    except TpuctlError as error:
        found.unread["the deployment"] = found.redactor.text(f"{error.message} ({error.code})")
    found.add("about.json", "versions of tpuctl, Python, system and packages", lambda: _about(choice))
    found.add(
        "doctor.json",
        "what `tpuctl doctor` finds",
        lambda: [one.as_dict() for one in diagnose(choice).findings],
    )
    # Before the deployment, which may be unreadable.
    for number, path in enumerate(_bugs(), 1):
        found.add(f"bug-{number}.txt", "a bug that tpuctl has met on this computer", path.read_text)
    if session is not None:
        _add_deployment(found, session)
    return found


def write_archive(path: Path, found: Collection) -> None:
    """Write the archive atomically, readable by this user only."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for file in found.files:
            archive.writestr(file.name, file.text)
        archive.writestr("not-read.json", json.dumps(found.unread, indent=1))
    write_private(path, buffer.getvalue())


def _add_deployment(found: Collection, session: Session) -> None:
    """Add what is known about one deployment on this computer, in its bucket and in the cloud."""
    found.add("settings.json", "the settings; values of job.env left out", lambda: _settings(session.spec))
    # Observing would start the local cloud, and this command starts nothing.
    if session.choice.cloud == "local" and running() is None:
        found.unread["cloud and bucket"] = "the local cloud does not run"
        return
    found.add(
        "record.json",
        "what tpuctl remembers",
        lambda: json.loads((session.folder / "record.json").read_bytes()),
    )
    found.add(
        "journal.json",
        "the newest changes and how they ended",
        lambda: _lines(session.folder / "journal.jsonl"),
    )
    found.add("status.json", "what exists and how far the job is", lambda: _status(session))
    found.add(
        "explain.json", "which rule decided what, on what evidence", lambda: explained(session).as_dict()
    )
    found.add("events.json", f"the newest {EVENTS} events", lambda: _events(session))
    found.add("job.log", f"the last {LINES} lines of each worker's log", lambda: _logs(session))


def _know_environment(redactor: Redactor) -> None:
    """Mask the values of variables whose names mean secrets."""
    for name, text in os.environ.items():
        if _SECRET_NAME.search(name) and not name.startswith("GOOGLE_APPLICATION_"):
            redactor.know(name, text)


def _know_spec(redactor: Redactor, spec: Spec) -> None:
    """Mask places where users put secrets although they should not: variables, addresses, hooks."""
    # All variables whatever their names, since tokens occur here despite the documentation.
    for name, text in spec.job.env.items():
        redactor.know(f"job.env.{name}", text)
    for text in (spec.job.command, spec.job.setup):
        for name, value in _ASSIGNED.findall(text):
            if _SECRET_NAME.search(name):
                redactor.know(name, value.strip("'\""))
    for place, texts in (("webhook", spec.notify.webhooks), ("apprise", spec.notify.apprise)):
        for text in texts:
            scheme, _, rest = text.partition("://")
            if scheme == "env":
                redactor.know(rest, os.environ.get(rest, ""))
            elif scheme != "secret":
                redactor.know(place, text)


def _about(choice: Choice) -> dict[str, Any]:
    def version(name: str) -> str:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            return "not installed"

    try:
        names = [re.split(r"[^A-Za-z0-9._-]", line)[0] for line in requirements()]
    except UsageError:
        names = []
    return {
        "tpuctl": __version__, "python": platform.python_version(), "implementation": sys.implementation.name,
        "system": platform.platform(), "cloud": choice.cloud,
        "packages": {name: version(name) for name in names},
        "variables": sorted(name for name in os.environ if name.startswith("TPUCTL_")),
    }  # fmt: skip


def _settings(spec: Spec) -> dict[str, Any]:
    body = dump(spec)
    body["job"]["env"] = {name: f"left out, {len(text)} characters" for name, text in spec.job.env.items()}
    return body


def _lines(path: Path) -> list[Any]:
    """Return the newest lines of a JSON-lines file; the first one may be cut."""
    with path.open("rb") as file:
        file.seek(max(0, file.seek(0, 2) - MAX_BYTES // 2))
        lines = file.read().decode(errors="replace").splitlines()
    return list(_parsed(lines))


def _parsed(lines: list[str]) -> Iterator[Any]:
    for line in lines:
        try:
            yield json.loads(line)
        except ValueError:
            yield line


def _status(session: Session) -> dict[str, Any]:
    return newest(session).as_dict()


def _events(session: Session) -> list[Any]:
    return [json.loads(event.to_json()) for event in read_events(session.store)[-EVENTS:]]


def _logs(session: Session) -> str:
    log = JobLogReader(session.store)
    tails: dict[int, list[str]] = {}
    held, most = 0, LINES
    for lines in (log.new_lines(), log.unfinished()):
        for incarnation, worker, line in lines:
            tail = tails.setdefault(worker, [])
            shown = line if len(line) <= MAX_LINE else line.rstrip("\r").rsplit("\r", 1)[-1]
            if len(shown) > MAX_LINE:
                shown = f"[a line of {len(line):,} characters is left out]"
            tail.append(f"w{worker} g{incarnation} {shown}")
            held += len(tail[-1]) - sum(map(len, tail[:-most]))
            del tail[:-most]
            while held > ALL_LINES and most > 1:
                # Fewer lines of each worker: there may be very many workers, and machines can invent some.
                most //= 2
                tails = {number: ones[-most:] for number, ones in tails.items()}
                held = sum(len(one) for ones in tails.values() for one in ones)
    return "\n".join(line for worker in sorted(tails) for line in tails[worker]) + "\n"


def _bugs() -> list[Path]:
    """Return the newest bug reports of this state folder."""
    found = []
    for path in Path(tempfile.gettempdir()).glob(f"{bug_prefix()}*.txt"):
        try:
            about = path.lstat()
        except OSError:
            continue
        # Any user may create such a name; only a regular file of ours with one link is a report of ours.
        if about.st_uid == os.getuid() and stat.S_ISREG(about.st_mode) and about.st_nlink == 1:
            found.append((about.st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)[:BUGS]]
