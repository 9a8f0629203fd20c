"""F14 and F17: a thousand tasks are submitted and looked at; the size of Slurm on each machine."""

import os
import subprocess
import sys
import time

from benchmarks.fleet.figures import Figure, load
from benchmarks.fleet.running_fleet import RunningFleet

TASKS, QUERIES = 1000, 3


def submission(fleet: RunningFleet) -> list[Figure]:
    """Submit to a fleet that is watched, and look at its queue, as processes of their own."""
    (fleet.lab.work / "many.yaml").write_text(
        f"name: many\narray: {TASKS}\n"
        "job: {source: src, command: sleep 600, checkpoint: {format: marker}}\n"
    )
    timed(fleet, "queue")  # Bytecode is written once.
    submit = timed(fleet, "submit", "many.yaml")
    time.sleep(20)  # The watch looks at the queue each 15 s.
    queries = [timed(fleet, "queue") for _ in range(QUERIES)]
    at, queue = load(), min(queries)
    fleet.cancel("many")
    (tree,) = fleet.head.glob("tree-*[0-9a-f]")
    megabytes = sum(path.lstat().st_size for path in tree.rglob("*") if path.is_file()) / 1e6
    return [
        Figure(
            "F14",
            f"submit {submit[0]:.1f} s, {submit[1]:.1f} s of it its own computing; queue {queue[0]:.1f} s, "
            f"{queue[1]:.1f} s of it computing ({at})",
            submit[0] <= 5 and queue[0] <= 1,
        ),
        Figure("F17", f"{megabytes:.0f} MB", megabytes <= 20),
    ]


def timed(fleet: RunningFleet, *words: str) -> tuple[float, float]:
    """Run `tpuctl fleet WORDS`; return the seconds on the wall, and of computing by the process itself."""
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "orchestrator", "fleet", *words], cwd=fleet.lab.work,
        env=fleet.lab.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    _, status, used = os.wait4(process.pid, 0)
    ended = time.monotonic()
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"fleet {words[0]} ended with {process.returncode}")
    return ended - began, used.ru_utime + used.ru_stime
