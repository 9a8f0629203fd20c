"""The user's command as a process: own session, marked environment, output through a pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional

from orchestrator.agent.caches.places import COMPILED_BY, compiled_folder
from orchestrator.agent.gang import Attempt
from orchestrator.agent.machine.processes import clear, processes_of
from orchestrator.agent.machine.venv import path_of
from orchestrator.agent.parts import Parts
from orchestrator.agent.rehearsal import check
from orchestrator.contract.job_variables import expanded

PAUSE = 0.05


class Job:
    """
    Run *argv* in *folder*; every piece of its output goes to *output*.

    The pipe is emptied by a thread of the agent, so a full disk cannot stop the job from printing.
    Raises UnsafeError, having started nothing, when it could leave a rehearsal.
    """

    def __init__(
        self,
        root: Path,
        argv: List[str],
        folder: Path,
        environ: Mapping[str, str],
        output: Callable[[bytes], None],
    ) -> None:
        check(environ)
        self._root = root
        self._output = output
        self._process = subprocess.Popen(
            argv,
            cwd=str(folder),
            env=dict(environ),
            # A program that asks a question would wait for ever for an answer.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # Signals reach all of the job by one call, and none that was meant for the agent reaches the job.
            start_new_session=True,
        )
        self._pump = threading.Thread(target=self._empty, name="job-output", daemon=True)
        self._pump.start()

    @property
    def session(self) -> int:
        """Return the id of the job's session, which is its leader's process id."""
        return self._process.pid

    def exit_code(self) -> Optional[int]:
        """Return the leader's exit status, negative for a signal, None while it runs."""
        return self._process.poll()

    def ask_to_stop(self, number: signal.Signals, seconds: float) -> None:
        """Send a signal to the job's process group and wait up to *seconds* until no process of the job is left."""
        end = time.monotonic() + seconds
        with contextlib.suppress(ProcessLookupError):
            # The leader may have ended, with children of its group still alive; then this reaches those.
            os.killpg(self.session, number)
        while time.monotonic() < end and (self.exit_code() is None or processes_of(self._root, self.session)):
            time.sleep(PAUSE)  # Its children are not ours to wait for: only a look tells that they are gone.

    def clear(self) -> List[int]:
        """Kill whatever is left of the job; return the ids of processes that do not die."""
        living = clear(self._root, self.session)
        with contextlib.suppress(subprocess.TimeoutExpired):
            # It is reaped here: as a zombie it would keep its id, and count as the living leader of the
            # session.
            self._process.wait(5)
        self._pump.join(5)
        return living

    def _empty(self) -> None:
        assert self._process.stdout is not None  # noqa: S101 (asked for above)
        descriptor = self._process.stdout.fileno()
        while True:
            try:
                data = os.read(descriptor, 1 << 16)
            except OSError:
                return
            if not data:
                return
            self._output(data)


DEFAULTS = {"PYTHONUNBUFFERED": "1"}
"""
What a job gets unless the deployment file says otherwise. Python holds back what it writes to a pipe: the
last lines of a job that is killed would be lost, and a job that prints would look stalled.
"""


ALL_PROGRAMS = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
"""JAX would only keep what took a second to compile; of a program's start the many small ones are a third."""


def job_environ(parts: Parts, attempt: Attempt, resume: str) -> Dict[str, str]:
    """
    Return the environment of one start; *resume* is the restored checkpoint, empty for none.

    `job_variables` describes what a job may rely on.
    """
    settings = parts.settings
    step, every = attempt.resume_step, parts.pace.seconds()
    compiled = compiled_folder(settings.layout)
    caches = {name: str(compiled / folder) for name, folder in COMPILED_BY.items()}
    environ = dict(
        {**DEFAULTS, **({**caches, **ALL_PROGRAMS} if settings.warm_start else {}), **parts.environ},
        PATH=path_of(settings.layout, parts.environ),
        TPUCTL_ROOT=str(settings.layout.root),
        TPUCTL_JOB=f"{settings.deployment}/{settings.incarnation}/{attempt.attempt}",
        TPUCTL_ATTEMPT=str(attempt.attempt),
        TPUCTL_RESUME_STEP="" if step is None else str(step),
        TPUCTL_RESUME=resume,
        TPUCTL_PROGRESS_FILE=str(settings.layout.progress),
        TPUCTL_CHECKPOINT_DIR=settings.checkpoints.folder,
        TPUCTL_DATA_DIR=str(settings.layout.data),
        TPUCTL_SAVE_EVERY_SECONDS="" if every is None else f"{every:.0f}",
        TPUCTL_SAVE_EVERY_FILE="" if every is None else str(settings.layout.save_every),
    )
    return expanded(environ)
