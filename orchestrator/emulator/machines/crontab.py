"""Debian's system crontab: parse `/etc/cron.d` files and say which jobs a minute starts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path

FILE_NAME = re.compile(r"[A-Za-z0-9_-]+$")  # other names in cron.d are ignored by Debian's cron
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)\s*=\s*(.*)$")
NICKNAMES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}


@dataclass(frozen=True)
class Job:
    """One crontab entry. *schedule* is a five-field expression or `@reboot`."""

    schedule: str
    user: str
    command: str
    environment: Mapping[str, str] = field(default_factory=dict)

    def command_and_input(self) -> tuple[str, bytes]:
        """Split the command at its first bare `%`: what follows is standard input, one line per `%`."""
        parts = [part.replace("\\%", "%") for part in re.split(r"(?<!\\)%", self.command)]
        return parts[0], ("\n".join(parts[1:]) + "\n").encode() if len(parts) > 1 else b""

    def due(self, minute: datetime) -> bool:
        """Tell whether the job starts in *minute* (naive local time, seconds zero)."""
        from cronsim import CronSim

        return (
            self.schedule != "@reboot"
            and next(CronSim(self.schedule, minute - timedelta(minutes=1))) == minute
        )


def parse(text: str) -> list[Job]:
    """Return the jobs of one system crontab. Raises ValueError, as cron refuses the whole file."""
    if text and not text.endswith("\n"):
        raise ValueError("missing newline before EOF")
    environment: dict[str, str] = {}
    jobs: list[Job] = []
    for line in (raw.strip() for raw in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        assignment = ASSIGNMENT.match(line)
        if assignment:
            environment[assignment[1]] = _unquote(assignment[2].strip())
        else:
            jobs.append(_job(line, dict(environment)))
    return jobs


def read_folder(folder: Path) -> tuple[list[Job], list[str]]:
    """Return the jobs of all crontabs in *folder* and a complaint for each file that cannot be used."""
    jobs: list[Job] = []
    complaints: list[str] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not FILE_NAME.match(path.name) or not path.is_file():
            continue
        try:
            jobs.extend(parse(path.read_text()))
        except (OSError, ValueError) as error:
            complaints.append(f"cron: Error: {error}; while reading {path}")
    return jobs, complaints


def _job(line: str, environment: Mapping[str, str]) -> Job:
    """Parse `m h dom mon dow user command` or `@nickname user command`."""
    from cronsim import CronSim, CronSimError

    nickname = line.startswith("@")
    words = line.split(None, 2 if nickname else 6)
    if len(words) != (3 if nickname else 7):
        raise ValueError(f"bad command in {line!r}")
    schedule = words[0] if nickname else " ".join(words[:5])
    schedule = NICKNAMES.get(schedule, schedule)
    if schedule != "@reboot":
        try:
            CronSim(schedule, datetime(2026, 1, 1))  # noqa: DTZ001 - any local time will do
        except CronSimError as error:
            raise ValueError(f"{error} in {line!r}") from error
    return Job(schedule, words[-2], words[-1], environment)


def _unquote(value: str) -> str:
    """Take matching quotes off."""
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
