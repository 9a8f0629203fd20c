"""
F2s and F3s: the recorded market on many real slurmd, with slurm.sh and without agents.

80 nodes with an agent for each task need more than two cores at 60 times the speed (docs/operating-a-fleet.md). So
here a task is a loop of bash that saves into a folder; controller, slurm.conf, `lost` and `tend` are the product's.
"""

import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

from benchmarks.fleet.figures import Figure, load
from benchmarks.fleet.market import WORKS, NodeWorkTime, recorded
from benchmarks.fleet.running_fleet import Step, redone
from orchestrator.domain.remote import Host
from orchestrator.domain.spec import JobSpec
from orchestrator.engine.fleet.slurm import Slurm
from orchestrator.errors import RemoteError
from orchestrator.planning.fleet.tasks import Submission
from tests.kit.real_slurm import FLEET, RealSlurm
from tests.kit.waiting import until

STEPS, PAUSE, EVERY, TASKS = 60, 0.5, 5, 4000
AWAY = 8.0
"""Seconds until a lost node has another machine: as long as the watch needs to know of it, and more."""
TASK = f"""\
#!/bin/bash
own=NOTES/$SLURM_ARRAY_TASK_ID
begun=$(cat "$own.save" 2>/dev/null || echo 0)
exec 9<> <(:)
for ((step = begun + 1; step <= {STEPS}; step++)); do
  read -r -t {PAUSE} -u 9 || true
  echo "$EPOCHREALTIME ${{SLURM_RESTART_COUNT:-0}} $step" >>"$own"
  ((step % {EVERY})) || {{ echo "$step" >"$own.new" && mv -f "$own.new" "$own.save"; }}
done
"""
TIMEOUT = 300.0


class SlurmAlone:
    """Nodes that come and go, and what their tasks have noted."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.notes = folder / "notes"
        self.notes.mkdir(parents=True)
        self.real = RealSlurm(folder / "root", nodes)
        self.names = [f"{FLEET}-{number:03d}" for number in range(1, nodes + 1)]
        self.slurm = Slurm(self.real, Host("vm", "127.0.0.1", ()))  # type: ignore[arg-type]
        self.watched = NodeWorkTime(self.states)
        self.incarnations = dict.fromkeys(self.names, 1)
        self.delays: list[float] = []
        self._over, self._side = threading.Event(), list[threading.Thread]()

    def states(self) -> dict[str, str]:
        """Return the state of each node as Slurm says it, nothing without an answer."""
        with suppress(RemoteError):
            return self.slurm.nodes()
        return {}

    def bring_up(self) -> None:
        """Start all daemons, and fill the queue."""
        self.real.word("call", "scontrol", "update", f"nodename={self.names[0]}", "comment=1")
        for name in self.names:
            self.real.join(name, 1)
        until(lambda: len(self.alive()) == len(self.names), "all nodes are up", TIMEOUT, 1.0)
        script = TASK.replace("NOTES", str(self.notes))
        job = Submission("market", ({},) * TASKS, JobSpec("x"), "b", script, 0.0)
        self.slurm.submit(job, range(TASKS), ["europe-west4-b"])
        until(lambda: len(self.steps()) >= len(self.names), "all nodes have a task", TIMEOUT, 1.0)

    def alive(self) -> list[str]:
        """Return the nodes that work and were not killed."""
        works = {name for name, state in self.states().items() if state in WORKS}
        return sorted(works - self.watched.lost)

    def lose(self, name: str) -> None:
        """Kill a node's machine; Slurm hears it as from the watch, and another machine comes."""
        self.real.leave(name)
        # Afterwards: what it still does before is in its time, so that no more than all of it can be used.
        self.watched.lost.add(name)
        self._beside(self._replace, name, time.time())

    def _replace(self, name: str, at: float) -> None:
        self.slurm.lost(name, self.incarnations[name])
        self.delays.append(time.time() - at)
        self._over.wait(AWAY)
        self.incarnations[name] += 1
        self.real.join(name, self.incarnations[name])

    def tend(self) -> None:
        """Put lost tasks first again and again, as the watch does at each of its passes."""
        while not self._over.wait(3.0):
            with suppress(RemoteError):
                self.slurm.tend()

    def _beside(self, call: Callable[..., None], *words: object) -> None:
        self._side.append(threading.Thread(target=call, args=words, daemon=True))
        self._side[-1].start()

    def steps(self) -> dict[str, list[Step]]:
        """Return the steps of each task in order of time."""
        found = {}
        for path in self.notes.iterdir():
            if not path.suffix:
                rows = [line.split() for line in path.read_text().splitlines()]
                found[path.name] = [Step(float(r[0]), int(r[1]), int(r[2])) for r in rows if len(r) == 3]
        return found

    def replay(
        self, preemptions: list[tuple[float, int]], seconds: float, faster: float
    ) -> tuple[float, int]:
        """Lose nodes as recorded; return when that began, and how many were lost."""
        began, lost = time.time(), 0
        self._beside(self.watched.watch)
        self._beside(self.tend)
        for at, count in preemptions:
            time.sleep(max(0.0, began + at / faster - time.time()))
            for name in self.alive()[:count]:
                self.lose(name)
                lost += 1
        time.sleep(max(0.0, began + seconds / faster - time.time()))
        self.watched.over.set()
        return began, lost

    def end(self) -> None:
        """End all processes."""
        self._over.set()
        for one in self._side:
            one.join(TIMEOUT)
        self.real.end()


def slurm_alone(nodes: int, trace: Path, faster: float, hours: tuple[float, float]) -> list[Figure]:
    """Replay a market on *nodes* real slurmd of this computer; the queue is never empty."""
    with tempfile.TemporaryDirectory(prefix="b-") as folder:
        market = SlurmAlone(Path(folder), nodes)
        try:
            market.bring_up()
            span = (hours[1] - hours[0]) * 3600
            began, lost = market.replay(recorded(trace, nodes, hours), span, faster)
            ended, steps = began + span / faster, market.steps()
        finally:
            market.end()
    about = (
        f"{trace.stem}, hours {hours[0]:g} to {hours[1]:g}, {faster:g} times as fast, {lost} preemptions on "
        f"{nodes} slurmd ({load()})"
    )
    return figures(market, steps, (began, ended), about)


def figures(
    market: SlurmAlone, steps: dict[str, list[Step]], span: tuple[float, float], about: str
) -> list[Figure]:
    """Return utilisation and goodput between two moments."""
    within = {task: [one for one in mine if span[0] <= one.at <= span[1]] for task, mine in steps.items()}
    made = sum(map(len, within.values())) * PAUSE
    unique = sum(len({one.number for one in mine}) for mine in within.values()) * PAUSE
    again = [count for mine in within.values() for count in redone(mine)]
    overlapping = sum(overlaps(mine) for mine in steps.values())
    used, good = made / market.watched.seconds, unique / market.watched.seconds
    known = statistics.quantiles(market.delays, n=20)[-1] if len(market.delays) > 1 else float("nan")
    return [
        Figure("F2s", f"{used:.3f}; {overlapping} tasks ran twice at once; Slurm heard of 95 % of the preemptions "
               f"within {known:.1f} s: {about}", used >= 0.94 and not overlapping),
        Figure("F3s", f"{good:.3f}; {len(again)} restarts made {sum(again) / max(1, len(again)):.1f} steps again "
               f"each, a save each {EVERY} steps of {PAUSE} s: {about}", good >= 0.92),
    ]  # fmt: skip


def overlaps(steps: list[Step]) -> bool:
    """Return whether an older start has made a step after a newer one had made its first."""
    return any(a.start > b.start for a, b in pairwise(steps))
