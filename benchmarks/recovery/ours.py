"""tpuctl as a user runs it: `up`, then `watch` with its usual poll, while machines are killed."""

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.recovery.recovery_lab import RecoveryLab, newest, next_job, wait_for
from tests.e2e.process_lab import EXAMPLE

POLL = 15
NAME = "bench"
JOB = """\
# Run train.py, and note time and process after each training step: its pause comes right after one.
import os, runpy, time
nap = time.sleep
def after_a_step(seconds):
    with open(os.environ["BENCH_STEPS"], "a") as file:
        file.write(f"{time.time()} {os.getpid()}\\n")
    nap(seconds)
time.sleep = after_a_step
runpy.run_path("train.py", run_name="__main__")
"""


def put_job(folder: Path) -> None:
    """Put the example there, with what notes its steps."""
    for source in EXAMPLE.glob("*.py"):
        (folder / source.name).write_bytes(source.read_bytes())
    (folder / "job.py").write_text(JOB)


@contextmanager
def watched(lab: RecoveryLab) -> Iterator[Path]:
    """Bring the example up and watch it; yield the file of its steps."""
    made = lab.folder / "steps"
    put_job(lab.work)
    (lab.work / "tpuctl.yaml").write_text(
        f"name: {NAME}\ntpu: {{type: v5litepod-8, zones: [europe-west4-b]}}\nvm: none\n"
        # This Python has numpy, which Google's images and the machines of a local cloud need not have.
        f"job:\n  command: {sys.executable} job.py\n  env: {{BENCH_STEPS: {made}, NUMPY_LM_STEPS: '1000000',"
        f" NUMPY_LM_STEP_SECONDS: '0.1', NUMPY_LM_SAVE_EVERY: '10'}}\nwatch: {{poll: {POLL}s}}\n"
    )
    lab.tpuctl("up")
    watch = lab.start("watch")
    try:
        yield made
    finally:
        watch.send_signal(signal.SIGINT)
        lab.end(watch, None)


def sample(
    lab: RecoveryLab,
    made: Path,
    number: int,
    moment: float,
    *,
    notice: bool,
    name: str = NAME,
    poll: float = POLL,
) -> dict[str, float]:
    """Take the machine of incarnation *number* away at a *moment* between two polls; return each part."""
    wait_for("the job trains", lambda: newest(made) or None)
    time.sleep(2.0 + moment * poll)
    job = newest(made)
    lost = lab.kill(f"{name}-tpu-g{number}", notice=notice)
    step = wait_for("the next step", lambda: next_job(made, job))
    times = wait_for("the report", lambda: _timings(lab, number + 1))
    asked = _event(lab, "node-create", lost)
    began, ready = lab.made(f"{name}-tpu-g{number + 1}")
    # An event is written beside the call that it tells of, and may be dated after it.
    observed = min(asked, began, _event(lab, "preempted", lost))
    fetched, restored = times["fetched"], times["restored"]
    # Nothing unpacked: it was looked for, and the setup began.
    there = times.get("unpacked", times.get("setup_began", fetched))
    done = max(there, times.get("setup_done", there))
    last = lab.heartbeats(number)[0]
    rest = {"rest": last["at"] - lost} if notice and last["phase"] == "stopped" else {}
    return {
        **rest,
        "detect": observed - lost, "decide": began - observed, "create": ready - began,
        "boot": times["boot"] - ready,
        "fetch": fetched - times["boot"], "unpack": there - fetched, "setup": done - there,
        "restore": max(0.0, restored - done), "start": step - max(restored, done),
        "added": began - lost, "total": step - lost,
    }  # fmt: skip


def _timings(lab: RecoveryLab, number: int) -> dict[str, float] | None:
    times = next((heartbeat["timings"] for heartbeat in lab.heartbeats(number)), {})
    return times if {"boot", "fetched", "restored"} <= set(times) else None


def _event(lab: RecoveryLab, kind: str, after: float) -> float:
    """Return when the controller first said something of that kind after a moment."""

    def read() -> float | None:
        names = (name.rpartition("/")[2] for name in lab.objects(".tpuctl/events/"))
        times = [int(n.split("-")[0]) / 1000 for n in names if n.endswith(f"-{kind}.json")]
        return min((at for at in times if at > after - 0.05), default=None)

    return wait_for(kind, read)
