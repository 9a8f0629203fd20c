"""A fleet of the product on a local cloud of its own: brought up, watched, and taken down to the last process."""

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from orchestrator.emulator.control import call
from tests.e2e.process_lab import ProcessLab

NAME, ZONE, PROJECT = "bench", "us-central1-b", "local-project"
TIMEOUT = 1800.0
TASK = Path(__file__).with_name("task.py")
JOB = """\
name: {name}
array: {tasks}
{more}job:
  source: src
  command: python3 task.py {steps} {every} {pause}
  checkpoint: {{format: marker}}
  target_steps: {steps}
  env: {{BENCH_STEPS: {notes}}}
"""


@dataclass(frozen=True)
class Step:
    """Hold one step: when, by which start of its task, and its number."""

    at: float
    start: int
    number: int


class RunningFleet:
    """
    Hold a fleet of *nodes* machines, with a local cloud and a user's folder of its own.

    *settings* is what its file says of it besides the nodes, `poll` how often the watch lists TPUs.
    """

    def __init__(self, folder: Path, nodes: int, settings: str = "", poll: str = "15s") -> None:
        self.lab, self.nodes = ProcessLab(folder, NAME), nodes
        # Installed code has its bytecode; each command that compiles all of it would be another measurement.
        self.lab.environment.pop("PYTHONDONTWRITEBYTECODE", None)
        source = self.lab.work / "src"
        source.mkdir()
        (source / "task.py").write_text(TASK.read_text())
        (self.lab.work / "tpuctl.yaml").write_text(
            f"name: {NAME}\ntpu: {{type: v2-8, zones: [{ZONE}]}}\nfleet: {{nodes: {nodes}{settings}}}\n"
            f"watch: {{poll: {poll}}}\n"
        )

    def bring_up(self) -> None:
        """Bring it up, watch it from here, and wait until all nodes take work."""
        self.lab.tpuctl("fleet", "up", "--yes", seconds=TIMEOUT)
        self.watching = self.lab.start("fleet", "watch", "--json")
        self.wait_for("all nodes take work", lambda: self.free() == self.nodes)

    # What a user does.

    def submit(
        self, name: str, tasks: int, *, steps: int, every: int, pause: float, more: str = "",
        words: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        """Submit a job of tasks that make *steps* steps of *pause* seconds, and save every *every* steps."""
        notes = self.notes(name)
        notes.mkdir()
        (self.lab.work / f"{name}.yaml").write_text(
            JOB.format(
                name=name, tasks=tasks, steps=steps, every=every, pause=pause, notes=notes,
                more=f"{more}\n" if more else "",
            )
        )  # fmt: skip
        self.lab.tpuctl("fleet", "submit", f"{name}.yaml", *words, seconds=TIMEOUT)

    def cancel(self, name: str) -> None:
        """End a job, and wait until no task of it runs."""
        self.lab.tpuctl("fleet", "cancel", name, seconds=TIMEOUT)
        self.wait_for("all tasks have ended", lambda: not self.slurm("squeue", "-h").strip())
        self.wait_for("all nodes take work", lambda: self.free() == self.nodes)

    # What happens to machines.

    def preempt(self, node: str) -> float:
        """SIGKILL all of a node's machine, without a notice; return when that was."""
        number = max(self.machines_of(node))
        at = time.time()
        call("preempt", {"name": f"{node}-tpu-g{number}", "notice": False}, folder=self.lab.cloud)
        return at

    def machines_of(self, node: str) -> list[int]:
        """Return the numbers of the machines that a node has or had."""
        names = (json.dumps(one) for one in self.lab.machines())
        found = [text.partition(f"{node}-tpu-g")[2] for text in names if f"{node}-tpu-g" in text]
        return [int(text[: next(i for i, c in enumerate(f"{text}x") if not c.isdigit())]) for text in found]

    def delete_vm(self) -> None:
        """Delete the VM with its disk, as somebody in the console does."""
        path = f"/compute/v1/projects/{PROJECT}/zones/{ZONE}/instances/{NAME}-vm"
        endpoint = json.loads((self.lab.cloud / "daemon.json").read_text())["endpoint"]
        urllib.request.urlopen(urllib.request.Request(endpoint + path, method="DELETE"), timeout=60).close()

    # What Slurm says, asked beside the product.

    @property
    def head(self) -> Path:
        """Return Slurm's folder on the VM; the newest VM's."""
        return max(
            self.lab.cloud.glob(f"machines/vm-*-{NAME}-vm-*/opt/tpuctl/slurm"),
            key=lambda p: p.stat().st_ctime,
        )

    def slurm(self, *words: str) -> str:
        """Return what a command of Slurm prints on the VM, nothing when it fails."""
        try:
            head = self.head
            (tree,) = head.glob("tree-*[0-9a-f]")
            library = next(tree.glob("usr/lib/*/slurm-wlm"))
        except (ValueError, StopIteration, OSError):
            return ""
        environment = {
            "PATH": f"{tree}/usr/bin:{os.environ['PATH']}", "SLURM_CONF": str(head / "slurm.conf"),
            "LD_LIBRARY_PATH": f"{library.parent}:{library}",
        }  # fmt: skip
        return subprocess.run(words, env=environment, capture_output=True, text=True, check=False).stdout

    def states(self) -> dict[str, str]:
        """Return the state of each node as Slurm says it."""
        lines = self.slurm("sinfo", "-h", "-N", "-o", "%N=%T").split()
        return dict(line.split("=", 1) for line in lines)

    def free(self) -> int:
        """Return how many nodes are idle."""
        return sum(state == "idle" for state in self.states().values())

    def slurm_controller(self) -> int:
        """Return the process of slurmctld, 0 without one."""
        try:
            pid = int((self.head / "slurmctld.pid").read_text())
            return pid if Path(f"/proc/{pid}/comm").read_text().strip() == "slurmctld" else 0
        except (OSError, ValueError):
            return 0

    # What is written.

    def notes(self, job: str) -> Path:
        """Return the folder with the steps of a job."""
        return self.lab.folder / f"steps-{job}"

    def steps(self, job: str) -> dict[str, list[Step]]:
        """Return the steps of each task and worker (`3.0`) in order of time, without a line that a kill has cut."""
        found = {}
        for path in self.notes(job).glob("*"):
            rows = (line.split() for line in path.read_text().splitlines())
            steps = [Step(float(r[0]), int(r[1]), int(r[2])) for r in rows if len(r) == 3]
            found[path.name] = sorted(steps, key=lambda step: step.at)
        return found

    def ended(self, job: str) -> int:
        """Return how many tasks have their mark."""
        return len(self.lab.objects(f"jobs/{job}/ends/"))

    def starts(self, job: str) -> list[str]:
        """Return the starts of all tasks, as TASK.NUMBER.NODE."""
        return [name.rpartition("/")[2] for name in self.lab.objects(f"jobs/{job}/starts/")]

    def known(self, node: str, after: float) -> float | None:
        """Return when the watch said that the machine of a node is lost, None when it has not."""
        text = (self.lab.folder / f"{self.watching.number}.out").read_text(errors="replace")
        for line in text.splitlines():
            if f"{node}-tpu-" in line and ('"preempted"' in line or '"anew"' in line):
                at = float(json.loads(line)["at"])
                if at >= after:
                    return at
        return None

    def wait_for(
        self, what: str, true: Callable[[], object], seconds: float = TIMEOUT, pause: float = 0.2
    ) -> float:
        """Wait until *true* says so; return when that was."""
        self.lab.wait_for(what, true, seconds, pause)
        return time.time()


@contextmanager
def watched(folder: Path, nodes: int, settings: str = "") -> Iterator[RunningFleet]:
    """Yield a fleet that is up and watched; then reset its cloud, and fail if a process or a file is left."""
    fleet = RunningFleet(folder, nodes, settings)
    try:
        fleet.bring_up()
        yield fleet
    finally:
        fleet.lab.close()


def redone(steps: list[Step]) -> list[int]:
    """Return how many steps each restart made again."""
    return [a.number - b.number + 1 for a, b in pairwise(steps) if b.start > a.start]


def percentile(values: list[float], share: float) -> float:
    """Return the value below which *share* of them lie."""
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]
