"""The user's command as a process: own session, marked environment, output through a pipe."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
import time
from pathlib import Path
from typing import Callable, List, Mapping, Optional

from orchestrator.agent.processes import clear, processes_of
from orchestrator.agent.rehearsal import check

PAUSE = 0.05


class Job:
    """
    Run `bash -c COMMAND` in *folder*; every piece of its output goes to *output*.

    The pipe is emptied by a thread of the agent, so a full disk cannot stop the job from printing.
    Raises UnsafeError, having started nothing, when it could leave a rehearsal.
    """

    def __init__(
        self,
        root: Path,
        command: str,
        folder: Path,
        environ: Mapping[str, str],
        output: Callable[[bytes], None],
    ) -> None:
        check(environ)
        self._root = root
        self._output = output
        self._process = subprocess.Popen(
            ["bash", "-c", command],
            cwd=str(folder),
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
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
            os.killpg(self.session, number)
        while time.monotonic() < end and (self.exit_code() is None or processes_of(self._root, self.session)):
            time.sleep(PAUSE)  # Its children are not ours to wait for: only a look tells that they are gone.

    def clear(self) -> List[int]:
        """Kill whatever is left of the job; return the ids of processes that do not die."""
        left = clear(self._root, self.session)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        self._pump.join(5)
        return left

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
