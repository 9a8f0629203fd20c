"""Let another design run, kill its TPU at random moments, and measure what its loop adds."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.recovery.ours import put_job
from benchmarks.recovery.recovery_lab import NODES, RecoveryLab, newest, next_job, wait_for
from tests.e2e.process_lab import REPO


@dataclass(frozen=True)
class Design:
    """Name a design: its loop, its real period in seconds, and by what this run divides it."""

    loop: str
    title: str
    period: float
    scale: float


CRON = Design("cron", "`watch -n 600` keeps the TPU, cron and flock start the job each 600 s", 600.0, 100.0)
BABYSIT = Design("babysit", "tpunicorn's babysitter, a look each 30 s", 30.0, 10.0)


def samples(
    lab: RecoveryLab,
    design: Design,
    moments: Sequence[float],
    put: Callable[[Path], None] = put_job,
    more: Mapping[str, str] | None = None,
) -> list[dict[str, float]]:
    """
    Return the parts of each recovery, the TPU being killed at *moments* of the loop's period.

    Times that the loop adds are in the design's own seconds. *put* brings the job, with *more* variables.
    """
    folder = lab.folder / design.loop
    folder.mkdir()
    put(folder)
    with running(lab, design, folder, more or {}):
        return [_sample(lab, design, folder, moment) for moment in moments]


@contextmanager
def running(lab: RecoveryLab, design: Design, folder: Path, more: Mapping[str, str]) -> Iterator[None]:
    """Run the loop with its job in a session of their own, which ends with the block."""
    env = {
        **os.environ, **more, "PYTHONPATH": str(REPO), "NUMPY_LM_STEPS": "1000000", "NUMPY_LM_STEP_SECONDS": "0.1",
        "NUMPY_LM_SAVE_EVERY": "10", "BENCH_STEPS": str(folder / "steps"),
        "TPUCTL_CHECKPOINT_DIR": str(folder / "checkpoints"),
        "TPUCTL_PROGRESS_FILE": str(folder / "progress"),
    }  # fmt: skip
    words = [design.loop, lab.endpoint + NODES, f"peer-{design.loop}", str(folder)]
    command = [sys.executable, "-m", "benchmarks.recovery.peers", *words, str(design.period / design.scale)]
    with (folder / "log").open("wb") as log, (folder / "err").open("wb") as err:
        process = subprocess.Popen(command, env=env, stdout=log, stderr=err, start_new_session=True)
    try:
        yield
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _sample(lab: RecoveryLab, design: Design, folder: Path, moment: float) -> dict[str, float]:
    made = folder / "steps"
    wait_for("the job trains", lambda: newest(made) or None)
    time.sleep(1.0 + moment * design.period / design.scale)
    job = newest(made)
    lost = lab.kill(f"peer-{design.loop}")
    os.kill(job, signal.SIGKILL)
    step = wait_for("the next step", lambda: next_job(made, job))
    observed, ready, start = (_when(folder / "log", what, lost) for what in ("seen", "ready", "start"))
    detect, idle = (observed - lost) * design.scale, (start - ready) * design.scale
    done = _when(folder / "log", "installed", lost) if "installed" in (folder / "log").read_text() else start
    setup = {"setup": done - start} if done > start else {}
    return {
        "detect": detect, "idle": idle, "create": ready - observed, **setup, "start": step - done,
        "added": detect + idle, "total": detect + idle + ready - observed + step - start,
    }  # fmt: skip


def _when(log: Path, what: str, after: float) -> float:
    """Return when the loop first said something after a moment."""
    lines = (line.split() for line in log.read_text().splitlines())
    return min(float(at) for at, said in lines if said == what and float(at) > after)
