"""F1 to F3, F5 and F6: a recorded market takes nodes of a watched fleet away; the watch brings them back."""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from benchmarks.fleet.figures import Figure, load
from benchmarks.fleet.running_fleet import RunningFleet, percentile, redone

AWS = Path(__file__).parents[1] / "traces" / "aws_p3_add_remove.csv"
EVERY, PAUSE, STEPS = 20, 0.25, 240
PREEMPTIONS = 12
JOB, TASKS, GOAL = "market", 2000, 80
_REQUEUED, _GIVEN = re.compile(r"equeu\w* .*?JobId=(\S+)"), "Allocate"
WORKS = frozenset({"idle", "allocated", "mixed", "completing"})


@dataclass
class NodeWorkTime:
    """Sum up how long nodes could work: Slurm has them, and nobody has killed them since."""

    states: Callable[[], dict[str, str]]
    seconds: float = 0.0
    lost: set[str] = field(default_factory=set)
    over: threading.Event = field(default_factory=threading.Event)

    def watch(self) -> None:
        """Look twice a second until it is *over*."""
        last, gone = time.time(), set[str]()
        while not self.over.wait(0.5):
            states, now = self.states(), time.time()
            up = {node for node, state in states.items() if state in WORKS}
            gone = (gone | (self.lost - up)) & self.lost
            # It is back when Slurm has seen it down, and up again.
            self.lost -= gone & up
            if states:
                self.seconds += len(up - self.lost) * (now - last)
            last = now


def replay(fleet: RunningFleet, trace: Path, faster: float, hours: tuple[float, float]) -> list[Figure]:
    """Lose nodes as recorded between two hours, *faster* than then; the queue is never empty."""
    preemptions = recorded(trace, fleet.nodes, hours)
    fleet.submit(JOB, TASKS, steps=STEPS, every=EVERY, pause=PAUSE)
    fleet.wait_for("all nodes have a task", lambda: len(fleet.steps(JOB)) >= fleet.nodes)
    watched, began = NodeWorkTime(fleet.states), time.time()
    polling = threading.Thread(target=watched.watch, daemon=True)
    polling.start()
    lost: list[tuple[str, float]] = []
    for at, count in preemptions:
        time.sleep(max(0.0, began + at / faster - time.time()))
        for node in _alive(fleet, watched)[:count]:
            watched.lost.add(node)
            lost.append((node, fleet.preempt(node)))
    time.sleep(max(45.0, began + (hours[1] - hours[0]) * 3600 / faster - time.time()))
    end = time.time()
    watched.over.set()
    polling.join()
    steps = {task: [one for one in made if one.at <= end] for task, made in fleet.steps(JOB).items()}
    known = {(node, at): fleet.known(node, at) for node, at in lost}
    twice, ended = committed_twice(fleet), fleet.ended(JOB)
    missing = set(range(TASKS)) - _queued(fleet) - _with_marker(fleet)
    fleet.cancel(JOB)
    about = (
        f"{trace.stem}, hours {hours[0]:g} to {hours[1]:g}, {faster:g} times as fast, {len(lost)} preemptions on "
        f"{fleet.nodes} nodes ({load()})"
    )
    made = sum(map(len, steps.values())) * PAUSE
    unique = sum(len({one.number for one in mine}) for mine in steps.values()) * PAUSE
    again = [count for mine in steps.values() for count in redone(mine)]
    delays = [at - key[1] for key, at in known.items() if at is not None]
    used, good, most = made / watched.seconds, unique / watched.seconds, max(again, default=0)
    mean = sum(again) / max(1, len(again))
    texts = {
        "F1": f"{len(missing)} / {len(twice)} of {len(steps)} tasks that began, {ended} of them done",
        "F2": f"{used:.3f} of the time in which nodes were in Slurm and alive, starts of tasks included",
        "F3": f"{good:.3f} of that time",
        "F5": f"p50 {percentile(delays, 0.5):.1f} s, at most {max(delays):.1f} s; the watch lists each 15 s",
        "F6": f"mean {mean:.1f}, at most {most} in {len(again)} restarts; a save each {EVERY} steps of {PAUSE} s",
    }
    met = {
        "F1": not missing and not twice,
        "F2": used >= 0.94,
        "F3": good >= 0.92,
        "F5": max(delays) <= 16,
        "F6": most <= EVERY + 1,
    }
    found: dict[str, bool | None] = {**met}
    if fleet.nodes < GOAL:
        found |= {name: None for name in ("F2", "F3") if met[name]}
    return [Figure(name, f"{text}: {about}", found[name]) for name, text in texts.items()]


def to_a_free_node(fleet: RunningFleet) -> list[Figure]:
    """Lose a node that has a task, again and again, while one node has none."""
    fleet.submit("spare", fleet.nodes - 1, steps=100_000, every=EVERY, pause=PAUSE)
    works = sorted(["allocated"] * (fleet.nodes - 1) + ["idle"])
    known: dict[tuple[str, float], float] = {}
    for _ in range(PREEMPTIONS):
        fleet.wait_for("one node is free", lambda: sorted(fleet.states().values()) == works)
        time.sleep(5)
        node = next(name for name, state in sorted(fleet.states().items()) if state == "allocated")
        lost = fleet.preempt(node)
        fleet.wait_for("the preemption is known", lambda node=node, lost=lost: fleet.known(node, lost))
        known[node, lost] = fleet.known(node, lost) or lost
        time.sleep(5)  # Slurm is told, and what was free is not any more.
    fleet.wait_for("the last task has a node", lambda: sorted(fleet.states().values()) == works)
    requeued, running = _by_slurm(fleet, known)
    fleet.cancel("spare")
    late, middle, later = percentile(requeued, 0.99), percentile(running, 0.5), percentile(running, 0.99)
    text = (
        f"p99 {late:.1f} s / p50 {middle:.1f}, p99 {later:.1f} s until Slurm has given it to the free node:"
        f" {len(running)} preemptions of {fleet.nodes} nodes ({load()})"
    )
    return [Figure("F4", text, late <= 1 and middle <= 15 and later <= 25)]


def _alive(fleet: RunningFleet, watched: NodeWorkTime) -> list[str]:
    """Return the nodes that can be lost."""
    found = {node for node, state in fleet.states().items() if state in WORKS}
    return sorted(found - watched.lost)


def _queued(fleet: RunningFleet) -> set[int]:
    found = fleet.slurm("squeue", "-h", "-r", "-n", JOB, "-o", "%K").split()
    return {int(one) for one in found if one.isdecimal()}


def _with_marker(fleet: RunningFleet) -> set[int]:
    names = fleet.lab.objects(f"jobs/{JOB}/ends/")
    return {int(name.rpartition("/")[2].partition(".")[0]) for name in names}


def _by_slurm(fleet: RunningFleet, known: dict[tuple[str, float], float]) -> tuple[list[float], list[float]]:
    """Return after how many seconds each known preemption led to a requeue, and to a node, by slurmctld's log."""
    requeued, running, log = [], [], list(_log(fleet.head / "log" / "slurmctld.log"))
    for (node, lost), at in known.items():
        queued = next(
            (
                (when, m[1])
                for when, line in log
                if when >= lost and node in line and (m := _REQUEUED.search(line))
            ),
            None,
        )
        if queued is None:
            continue  # It had no task.
        requeued.append(max(0.0, queued[0] - at))
        task = queued[1].partition("(")[0]
        given = (when for when, line in log if when > queued[0] and _GIVEN in line and f"{task}(" in line)
        running += [when - at for when in given][:1]
    return requeued or [float("nan")], running or [float("nan")]


def _log(path: Path) -> Iterator[tuple[float, str]]:
    for line in path.read_text(errors="replace").splitlines():
        with suppress(ValueError):
            stamp, _, rest = line.removeprefix("[").partition("] ")
            yield datetime.fromisoformat(stamp).astimezone().timestamp(), rest


def committed_twice(fleet: RunningFleet) -> list[str]:
    """Return the tasks of which an older start has committed after a newer one had claimed."""
    found = []
    for task in {one.partition(".")[0] for one in fleet.starts(JOB)}:
        folder = f"jobs/{JOB}/tasks/{task}/"
        at = {one["name"].removeprefix(folder): one["timeCreated"] for one in _items(fleet, folder)}
        claims = {int(n.split("/")[2]): when for n, when in at.items() if n.endswith("/claim.json")}
        commits = [
            (int(m[1]), when) for n, when in at.items() if (m := re.search(r"/g(\d+)/w\d+\.manifest", n))
        ]
        if any(
            when > claimed and start < newer for start, when in commits for newer, claimed in claims.items()
        ):
            found.append(task)
    return found


def _items(fleet: RunningFleet, prefix: str) -> list[dict[str, str]]:
    body = fleet.lab.get(f"/storage/v1/b/{fleet.lab.bucket()}/o?prefix={prefix.replace('/', '%2F')}")
    found: list[dict[str, str]] = json.loads(body or b"{}").get("items", [])
    return found


def recorded(trace: Path, nodes: int, hours: tuple[float, float]) -> list[tuple[float, int]]:
    """
    Return when how many nodes are lost, in seconds since the first hour, as many as of a fleet of *nodes*.

    A CSV is Bamboo's (milliseconds, add or remove, machine), another file has lines `date, time, machines`.
    """
    first, last = (hour * 3600 for hour in hours)
    rows = _bamboo(trace) if trace.suffix == ".csv" else _counts(trace)
    size, preemptions, owed = max(alive for _, alive, _ in rows), [], 0.0
    for at, _, gone in rows:
        if not first <= at <= last:
            continue
        owed += gone * nodes / size
        if owed >= 1:
            preemptions.append((at - first, int(owed)))
            owed -= int(owed)
    return preemptions


def _bamboo(trace: Path) -> list[tuple[float, int, int]]:
    rows, alive = [], 0
    for line in trace.read_text().split():
        milliseconds, verb, _ = line.split(",")
        alive += 1 if verb == "add" else -1
        rows.append((int(milliseconds) / 1000, alive, int(verb != "add")))
    return rows


def _counts(trace: Path) -> list[tuple[float, int, int]]:
    rows: list[tuple[float, int, int]] = []
    began, before = 0.0, 0
    for line in trace.read_text().splitlines():
        date, clock, number = (cell.strip() for cell in line.split(","))
        at, alive = datetime.fromisoformat(f"{date} {clock}").timestamp(), int(number)
        began = began or at
        # Each change stands there three times, a minute apart: what is no newer than the row before is a copy.
        if rows and at - began <= rows[-1][0]:
            continue
        rows.append((at - began, alive, max(0, before - alive)))
        before = alive
    return rows
