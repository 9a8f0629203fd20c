"""Run the user's command as a process: own session, marked environment, output through a pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, Dict, List, Mapping, Optional

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.caches.places import COMPILED_BY, compiled_folder
from orchestrator.agent.context import AgentContext
from orchestrator.agent.machine.emulator_guard import check
from orchestrator.agent.machine.processes import clear, processes_of
from orchestrator.agent.machine.venv import path_of
from orchestrator.contract.backoff import polled
from orchestrator.contract.job_variables import expanded

PAUSE = 0.05
"""Seconds between two checks for survivors of the stop signal: a save that ends early is committed early."""


class JobProcess:
    """
    The process that runs *argv* in *folder*; *output* is called with every piece of its output.

    A thread reads the pipe, so a full disk cannot block the job. Raise UnsafeError before the start if the
    job could leave a rehearsal.
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
            # A program that asks a question would otherwise wait forever.
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # One call then signals the whole job, and signals for the agent do not reach it.
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

    def ask_to_stop(self, number: signal.Signals, timeout: float) -> bool:
        """Send a signal to the job's process group; return whether its processes end within *timeout* seconds."""
        with contextlib.suppress(ProcessLookupError):
            # The leader may have ended while children of its group are alive; killpg reaches those too.
            os.killpg(self.session, number)
        # waitpid does not work for grandchildren, so poll.
        return polled(
            lambda: self.exit_code() is not None and not processes_of(self._root, self.session),
            PAUSE, now=time.monotonic, wait=time.sleep, timeout=timeout, longest=PAUSE,
        )  # fmt: skip

    def clear(self) -> List[int]:
        """Kill all processes of the job; return the ids of those that survive."""
        living = clear(self._root, self.session)
        with contextlib.suppress(subprocess.TimeoutExpired):
            # Reap the leader: as a zombie it keeps its id and would count as the living leader of the session.
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
Environment of the job unless the deployment file sets it.

Python buffers its output to a pipe: the last lines of a killed job would be lost, and a job that prints would
look stalled.
"""


ALL_PROGRAMS = {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"}
"""JAX caches only programs that took over a second to compile; the many small ones are a third of a start."""


def job_environ(context: AgentContext, attempt: Attempt, resume: str) -> Dict[str, str]:
    """
    Return the environment of one start; *resume* is the path of the restored checkpoint, "" for none.

    `job_variables` documents what a job may rely on.
    """
    settings = context.settings
    step, every = attempt.resume_step, context.save_interval.seconds()
    compiled = compiled_folder(settings.layout)
    caches = {name: str(compiled / folder) for name, folder in COMPILED_BY.items()}
    environ = dict(
        {**DEFAULTS, **({**caches, **ALL_PROGRAMS} if settings.warm_start else {}), **context.environ},
        PATH=path_of(settings.layout, context.environ),
        TPUCTL_ROOT=str(settings.layout.root),
        TPUCTL_JOB=f"{settings.deployment}/{settings.incarnation}/{attempt.attempt}",
        TPUCTL_ATTEMPT=str(attempt.attempt),
        TPUCTL_RESUME_STEP="" if step is None else str(step),
        TPUCTL_RESUME=resume,
        TPUCTL_PROGRESS_FILE=str(settings.layout.progress),
        TPUCTL_CHECKPOINT_DIR=settings.checkpoints.folder,
        TPUCTL_DATA_DIR=str(settings.layout.data),
        TPUCTL_SAVE_EVERY_SECONDS="" if every is None else f"{every:.0f}",
        TPUCTL_SAVE_EVERY_FILE="" if every is None else str(settings.layout.save_interval),
    )
    return expanded(environ)
