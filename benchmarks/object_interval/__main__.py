"""
python -m benchmarks.object_interval: what one change of an object a second costs the commands.

Each turn makes a local cloud with that limit and one without, one after the other. The part
`object-interval` of docs/performance.md is written unless --print is given.
"""

import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import document
from benchmarks.table import goal, table, words

PROGRAM = [sys.executable, "-m", "orchestrator"]
REPO = Path(__file__).parents[2]
FOREIGN = ("TPUCTL_", "GOOGLE_", "CLOUDSDK_", "GCE_METADATA", "STORAGE_EMULATOR")
TURNS, LIMIT, TIMEOUT = 5, 1.3, 180.0
UP, AGAIN, PUSH, WATCH = "up", "up again", "push", "watch, from a preemption to the next job"
WHY = {
    AGAIN: "Here it follows the first one at once, so its write of the record comes within a second of that one's, "
    "and waits for the rest of the second."
}
FILE = """\
name: bench
tpu: {type: v5litepod-8, zones: [europe-west4-b]}
job: {command: "date > $BENCH_RAN; exec sleep 1000", env: {BENCH_RAN: RAN}}
watch: {poll: 2s}
"""


class ObjectIntervalLab:
    """Run the commands in one folder against a local cloud of its own."""

    def __init__(self, folder: Path) -> None:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(FOREIGN)}
        self.work, self.ran, self.said = folder / "work", folder / "ran", ""
        self.cloud = folder / "cloud"
        self.environment = {
            **inherited, "PYTHONPATH": str(REPO), "TPUCTL_LOCAL_DIR": str(self.cloud), "TPUCTL_CLOUD": "local",
            "NO_COLOR": "1",
        }  # fmt: skip
        self.work.mkdir()
        (self.work / "tpuctl.yaml").write_text(FILE.replace("RAN}", f"{self.ran}}}"))
        (self.work / "code.py").write_text("print(1)\n")

    def tpuctl(self, *command: str) -> float:
        """Run a command to its end and return its seconds."""
        begun = time.monotonic()
        done = subprocess.run(
            [*PROGRAM, *command], cwd=self.work, env=self.environment, text=True, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        self.said += done.stdout
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stdout}")
        return time.monotonic() - begun

    def recovery(self) -> float:
        """Return the seconds from the preemption of a watched machine until the job runs on the next."""
        log = self.work.parent / "watch.log"
        with log.open("w") as out:
            watch = subprocess.Popen(
                [*PROGRAM, "watch"], cwd=self.work, env=self.environment, stdout=out, stderr=out
            )
            try:
                self.wait_for(lambda: "watching" in log.read_text() or log.stat().st_size > 0)
                time.sleep(6)  # Its first passes are over, and the token of the record is free again.
                self.ran.unlink()
                begun = time.monotonic()
                self.tpuctl("local", "preempt", "--no-notice", "bench-tpu-g1")
                self.wait_for(self.ran.exists)
                taken = time.monotonic() - begun
            finally:
                watch.send_signal(signal.SIGINT)
                watch.wait(60)
        self.said += log.read_text()
        return taken

    def wait_for(self, reached: Callable[[], bool]) -> None:
        """Look until it is there."""
        end = time.monotonic() + TIMEOUT
        while not reached():
            if time.monotonic() > end:
                raise TimeoutError(self.said)
            time.sleep(0.02)


@contextmanager
def running_lab(interval: float) -> Iterator[ObjectIntervalLab]:
    """Run a local cloud in which one object may change once in *interval* seconds."""
    with tempfile.TemporaryDirectory(prefix="bench-object-interval-") as name:
        one = ObjectIntervalLab(Path(name))
        one.tpuctl("local", "start", "--object-interval", str(interval), "--no-fresh-project")
        try:
            yield one
        finally:
            one.tpuctl("local", "reset")


def turn(interval: float) -> tuple[dict[str, float], int]:
    """Return the seconds of each command, and how often a 429 was printed."""
    with running_lab(interval) as lab:
        taken = {UP: lab.tpuctl("up"), AGAIN: lab.tpuctl("up")}
        (lab.work / "code.py").write_text("print(2)\n")
        taken[PUSH] = lab.tpuctl("push")
        lab.wait_for(lab.ran.exists)
        taken[WATCH] = lab.recovery()
        return taken, lab.said.count("429") + lab.said.count("TPU-402")


def main() -> None:
    """Measure, print, and write the table."""
    found: dict[float, dict[str, list[float]]] = {0.0: {}, 1.0: {}}
    printed = 0
    turn(1.0)
    for number in range(TURNS):
        for interval in (0.0, 1.0) if number % 2 else (1.0, 0.0):
            taken, shown = turn(interval)
            printed += shown
            print(number, interval, {name: round(seconds, 2) for name, seconds in taken.items()}, shown)
            for name, seconds in taken.items():
                found[interval].setdefault(name, []).append(seconds)
    text = page(found, printed)
    print(text)
    if "--print" not in sys.argv:
        document.put("object-interval", text)


def page(found: dict[float, dict[str, list[float]]], printed: int) -> str:
    """Return the table and what it says about the goal."""
    free, limited = (
        {name: statistics.median(taken) for name, taken in found[interval].items()} for interval in (0.0, 1.0)
    )
    about = words(
        "Whole commands on a local cloud of their own with bucket, VM and TPU (`local start",
        f"--object-interval`), at its usual latency; medians of {TURNS} turns in which both clouds take",
        f"turns. A 429 was printed {printed} times.",
    )
    heads = ("command", "any number, s", "one change of an object a second, s", "ratio")
    rows = [
        (f"`{name}`", f"{free[name]:.2f}", f"{limited[name]:.2f}", f"{limited[name] / free[name]:.2f}")
        for name in free
    ]
    goals = [
        goal(
            f"`{name}`",
            limited[name] / free[name],
            LIMIT,
            "of what it takes without the limit",
            WHY.get(name, ""),
        )
        for name in free
    ]
    heading = "## One change of an object a second"
    return "\n\n".join((heading, about, table(heads, rows), "\n".join(goals)))


if __name__ == "__main__":
    main()
