"""A small cron for machines without one of their own; its minute may be shorter than a minute."""

import asyncio
import time
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Coroutine
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from orchestrator.emulator.machines.crontab import Job, read_folder
from orchestrator.emulator.machines.environment import user_environment
from orchestrator.emulator.machines.scripts import Serial
from orchestrator.emulator.machines.settings import GuestConfig

SHELL = "/bin/sh"


class Cron:
    """Start the jobs of the machine's cron.d folder, which is read again in every minute."""

    def __init__(self, config: GuestConfig, serial: Serial) -> None:
        self._config = config
        self._serial = serial
        self._folder = Path(config.environment["TPUCTL_CRON_DIR"])
        self._complaints: list[str] = []
        self._running: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Start `@reboot` jobs once, then what each minute asks for, until cancelled."""
        for job in self._jobs():
            if job.schedule == "@reboot":
                self._spawn(self._start(job))
        minute = datetime.now().replace(second=0, microsecond=0)  # noqa: DTZ005 - cron knows local time only
        while True:
            await asyncio.sleep(self._until_next())
            minute += timedelta(minutes=1)
            for job in self._jobs():
                if job.due(minute):
                    self._spawn(self._start(job))

    def _until_next(self) -> float:
        """Return the seconds to the next minute; all machines of the computer tick together."""
        length = self._config.cron_minute_seconds
        return length - time.time() % length

    def _jobs(self) -> list[Job]:
        jobs, complaints = read_folder(self._folder)
        for complaint in complaints:
            if complaint not in self._complaints:
                self._serial.line(complaint)
        self._complaints = complaints
        return jobs

    async def _start(self, job: Job) -> None:
        """Run one job in its own session, as cron does; its output goes nowhere: there is no mail."""
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
        """Keep a reference to the task: the event loop holds only a weak one."""
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
