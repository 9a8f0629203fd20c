"""The runs that decide for an engine, and the replay of a recorded market."""

import contextlib
import shlex
import sys
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from benchmarks.fleet.slurm import Slurm, until

TASK = Path(__file__).with_name("task.py")
TRACE = Path(__file__).parents[1] / "traces" / "aws_p3_add_remove.csv"


@dataclass(frozen=True)
class Step:
    """Hold one step: when, by which attempt of which task, on which machine."""

    at: float
    attempt: int
    number: int
    machine: str


@dataclass(frozen=True)
class Work:
    """Describe tasks of *steps* steps of *pause* seconds, saved every *every* steps, that write to *folder*."""

    folder: Path
    steps: int
    every: int
    pause: float

    def submit(self, slurm: Slurm, tasks: int, *options: str) -> int:
        """Put an array of tasks into the queue and return its number."""
        self.folder.mkdir(exist_ok=True)
        words = [sys.executable, str(TASK), str(self.folder)]
        numbers = [str(self.steps), str(self.every), str(self.pause)]
        line = f"exec {shlex.join(words)} $SLURM_ARRAY_JOB_ID.$SLURM_ARRAY_TASK_ID {shlex.join(numbers)}"
        said = slurm.call(
            "sbatch", "--parsable", "--output=/dev/null", f"--array=0-{tasks - 1}", *options, f"--wrap={line}"
        )
        return int(said)

    def made(self) -> dict[str, list[Step]]:
        """Return the steps of each task, in order of time; a line that a kill has cut is left out."""
        found = {}
        for path in self.folder.glob("*.steps"):
            rows = (line.split() for line in path.read_text().splitlines())
            steps = [Step(float(r[0]), int(r[1]), int(r[2]), r[3]) for r in rows if len(r) == 4]
            found[path.stem] = sorted(steps, key=lambda step: step.at)
        return found

    def done(self) -> int:
        """Return how many tasks have saved their last step."""
        return sum(path.read_text() == str(self.steps) for path in self.folder.glob("*.saved"))


def redone(steps: list[Step]) -> int:
    """Return how many steps were made more than once."""
    return len(steps) - len({step.number for step in steps})


def overlapping(steps: list[Step]) -> bool:
    """Say whether an older attempt made a step after a newer one had begun."""
    return any(later.attempt < earlier.attempt for earlier, later in pairwise(steps))


def controller_killed(slurm: Slurm, folder: Path, age: float, away: float = 8.0) -> dict[str, float]:
    """Kill the controller when the tasks are *age* seconds old, and start it *away* seconds later."""
    work = Work(folder, steps=150, every=10, pause=0.1)
    work.submit(slurm, slurm.machines)
    until("all tasks run", lambda: len(work.made()) == slurm.machines)
    time.sleep(age)
    slurm.kill_controller()
    time.sleep(away)
    answered = slurm.start_controller()
    with contextlib.suppress(TimeoutError):
        until("all tasks are done", lambda: work.done() == slurm.machines, 45.0)
    tasks = work.made().values()
    slurm.call("scancel", "--user=root")
    slurm.ready(slurm.machines)
    return {
        "age": age, "tasks": len(tasks), "done": work.done(), "redone": sum(map(redone, tasks)),
        "answered": answered,
    }  # fmt: skip


def machine_lost(slurm: Slurm, folder: Path) -> dict[str, float]:
    """Kill a machine that works while another is free, tell the controller, and bring the machine back."""
    work = Work(folder, steps=100, every=10, pause=0.1)
    array = work.submit(slurm, 1)
    until("the task runs", lambda: any(len(steps) > 25 for steps in work.made().values()))
    (steps,) = work.made().values()
    lost = time.time()
    slurm.lose(int(steps[-1].machine.removeprefix("tpu-")))
    told = time.time()
    queue = lambda: slurm.call("squeue", "-h", "-j", str(array), "-o", "%T")  # noqa: E731 (asked twice)
    until("the task waits again", lambda: "PENDING" in queue())
    requeued = time.time()
    until("the task is done", lambda: work.done() == 1)
    (steps,) = work.made().values()
    back = next(step.at for step in steps if step.attempt > 0)
    slurm.add(int(steps[0].machine.removeprefix("tpu-")))
    slurm.ready(slurm.machines)
    return {
        "told": told - lost, "requeued": requeued - lost, "back": back - lost, "redone": redone(steps),
        "overlapping": overlapping(steps),
    }  # fmt: skip


def shares(slurm: Slurm, folder: Path, seconds: float = 60.0) -> dict[str, float]:
    """Let the users alice, who has used the fleet before, and bob, who has not, want all of it."""
    before = Work(folder / "before", steps=100, every=10, pause=0.1)
    folder.mkdir()
    before.submit(slurm, slurm.machines, "--account=alice")
    until("alice has used it", lambda: before.done() == slurm.machines)
    time.sleep(62)  # Shares are counted once a minute.
    work = {user: Work(folder / user, steps=40, every=10, pause=0.1) for user in ("alice", "bob")}
    for user, one in work.items():
        one.submit(slurm, 100, f"--account={user}")
    most, used, end = 0, {"alice": 0.0, "bob": 0.0}, time.monotonic() + seconds
    while time.monotonic() < end:
        running = slurm.call("squeue", "-h", "-t", "R", "-o", "%a").split()
        for user in used:
            used[user] += running.count(user)
        most = max(most, running.count("bob"))
        time.sleep(0.5)
    slurm.call("scancel", "--user=root")
    total = sum(used.values())
    return {"alice": used["alice"] / total, "bob": used["bob"] / total, "most": most}


def replay(slurm: Slurm, folder: Path, faster: float, hours: tuple[float, float]) -> dict[str, float]:
    """Lose and gain machines as recorded between two hours, *faster* than then; the queue is never empty."""
    events = recorded(slurm.machines, hours)
    work = Work(folder, steps=240, every=20, pause=0.125)
    work.submit(slurm, 2000)
    began, live, losses, machine_seconds, last = (
        time.time(),
        set(range(1, slurm.machines + 1)),
        [],
        0.0,
        time.time(),
    )
    for at, number, comes in events:
        moment = began + at / faster
        while time.time() < moment:
            slurm.requeued_first()
            time.sleep(min(0.5, max(0.0, moment - time.time())))
        now = time.time()
        machine_seconds, last = machine_seconds + len(live) * (now - last), now
        if comes:
            slurm.add(number)
            live.add(number)
        else:
            slurm.lose(number)
            live.discard(number)
            losses.append((now, f"tpu-{number}"))
    end = time.time()
    machine_seconds += len(live) * (end - last)
    slurm.call("scancel", "--user=root")
    return _figures(work, losses, machine_seconds, end)


def _figures(
    work: Work, losses: list[tuple[float, str]], machine_seconds: float, end: float
) -> dict[str, float]:
    tasks = work.made()
    steps = [step for one in tasks.values() for step in one if step.at <= end]
    unique = sum(len({step.number for step in one if step.at <= end}) for one in tasks.values())
    delays, repeated = [], []
    for one in tasks.values():
        for earlier, later in pairwise(one):
            if later.attempt > earlier.attempt:
                delays.append(later.at - earlier.at)
                repeated.append(earlier.number - later.number + 1)
    delays.sort()
    return {
        "losses": len(losses), "tasks": len(tasks), "restarts": len(delays),
        "utilisation": len(steps) * work.pause / machine_seconds, "goodput": unique * work.pause / machine_seconds,
        "p50": delays[len(delays) // 2], "p99": delays[int(len(delays) * 0.99)], "longest": delays[-1],
        "redone": sum(repeated) / len(repeated), "most": max(repeated), "every": work.every,
        "overlapping": sum(map(overlapping, tasks.values())),
    }  # fmt: skip


def recorded(machines: int, hours: tuple[float, float]) -> list[tuple[float, int, bool]]:
    """
    Return when a machine comes or goes, in seconds since the first hour; it then stands for one slot of the fleet.

    The record names every machine anew, and holds at most as many at once as there are slots.
    """
    first, last = (hour * 3600 for hour in hours)
    free, slot, events = list(range(machines, 0, -1)), {}, []
    for line in TRACE.read_text().split():
        milliseconds, verb, name = line.split(",")
        at = int(milliseconds) / 1000
        if verb == "add":
            slot[name] = free.pop()
        number = slot[name] if verb == "add" else slot.pop(name)
        if verb != "add":
            free.append(number)
        if at <= last:
            events.append((max(0.0, at - first), number, verb == "add"))
    # What happened before the first hour is there at the beginning: only its sum counts.
    state = {number: comes for at, number, comes in events if at == 0}
    gone = [(0.0, number, False) for number in range(1, machines + 1) if not state.get(number, False)]
    return gone + [event for event in events if event[0] > 0]
