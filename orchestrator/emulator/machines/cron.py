"""Run a small cron for machines without one; its minute may be shorter than 60 s."""

import asyncio
import re
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cronsim import CronSim, CronSimError

from orchestrator.emulator.machines.environment import user_environment
from orchestrator.emulator.machines.machine_settings import GuestConfig
from orchestrator.emulator.machines.script_runner import Serial

SHELL = "/bin/sh"
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
class CronJob:
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
        """Return whether the job starts in *minute* (naive local time, seconds zero)."""
        return (
            self.schedule != "@reboot"
            and next(CronSim(self.schedule, minute - timedelta(minutes=1))) == minute
        )


class Cron:
    """Start the jobs of the machine's cron.d folder, which is read again in every minute."""

    def __init__(self, config: GuestConfig, serial: Serial) -> None:
        self._config = config
        self._serial = serial
        self._folder = Path(config.environment["TPUCTL_CRON_DIR"])
        self._errors: list[str] = []
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Start `@reboot` jobs once, then the jobs of each minute, until cancelled."""
        for job in self._jobs():
            if job.schedule == "@reboot":
                self._spawn(self._start(job))
        minute = datetime.now().replace(second=0, microsecond=0)  # noqa: DTZ005 - cron knows local time only
        while True:
            # Real time, as cron starts jobs by the clock of the wall.
            await asyncio.sleep(self._until_next())
            minute += timedelta(minutes=1)
            for job in self._jobs():
                if job.due(minute):
                    self._spawn(self._start(job))

    def _until_next(self) -> float:
        """Return the seconds to the next minute, which is the same for all machines of the computer."""
        length = self._config.cron_minute_seconds
        return length - time.time() % length

    def _jobs(self) -> list[CronJob]:
        jobs, errors = read_folder(self._folder)
        for error in errors:
            if error not in self._errors:
                self._serial.line(error)
        self._errors = errors
        return jobs

    async def _start(self, job: CronJob) -> None:
        """Run one job in its own session, as cron does; its output is discarded, as there is no mail."""
        home = self._config.home(job.user)
        await asyncio.to_thread(home.mkdir, parents=True, exist_ok=True)
        login = user_environment(self._config.environment, job.user, home, SHELL)
        environment = {**login, **job.environment}
        command, text = job.command_and_input()
        process = await asyncio.create_subprocess_exec(
            environment.get("SHELL", SHELL), "-c", command, env=environment, cwd=home,
            start_new_session=True, stdin=PIPE, stdout=DEVNULL, stderr=DEVNULL,
        )  # fmt: skip
        await process.communicate(text)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Keep a reference to the task, of which the event loop holds only a weak one."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)


def parse(text: str) -> list[CronJob]:
    """Parse one system crontab. Raise ValueError for an error, as cron refuses the whole file."""
    if text and not text.endswith("\n"):
        raise ValueError("missing newline before EOF")
    environment: dict[str, str] = {}
    jobs: list[CronJob] = []
    for line in (raw.strip() for raw in text.splitlines()):
        if not line or line.startswith("#"):
            continue
        assignment = ASSIGNMENT.match(line)
        if assignment:
            environment[assignment[1]] = _unquote(assignment[2].strip())
        else:
            jobs.append(_job(line, dict(environment)))
    return jobs


def read_folder(folder: Path) -> tuple[list[CronJob], list[str]]:
    """Return the jobs of all crontabs in *folder*, and an error message for each unusable file."""
    jobs: list[CronJob] = []
    errors: list[str] = []
    for path in sorted(folder.iterdir()) if folder.is_dir() else []:
        if not FILE_NAME.match(path.name) or not path.is_file():
            continue
        try:
            jobs.extend(parse(path.read_text()))
        except (OSError, ValueError) as error:
            errors.append(f"cron: Error: {error}; while reading {path}")
    return jobs, errors


def _job(line: str, environment: Mapping[str, str]) -> CronJob:
    """Parse `m h dom mon dow user command` or `@nickname user command`."""
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
    return CronJob(schedule, words[-2], words[-1], environment)


def _unquote(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] and value[0] in "'\"" else value
