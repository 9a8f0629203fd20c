"""F9: a task over several slices loses one of them, while another node is free."""

import json
import time

from benchmarks.fleet.figures import Figure, load
from benchmarks.fleet.running_fleet import RunningFleet, redone

JOB, SLICES = "gang", 2


def gang_lost(fleet: RunningFleet) -> list[Figure]:
    """Kill the slice on which Slurm did not start the task, whose end Slurm would see by itself."""
    fleet.submit(JOB, 1, steps=100_000, every=10, pause=0.5, more=f"slices: {SLICES}")
    workers = [f"0.{worker}" for worker in range(SLICES)]
    fleet.wait_for("all slices train", lambda: all(_newest(fleet, worker, 1) for worker in workers))
    time.sleep(20)
    node = next(name for name in fleet.states() if _slice(fleet, name) == SLICES - 1)
    lost = fleet.preempt(node)
    known = fleet.wait_for("the preemption is known", lambda: fleet.known(node, lost)) and fleet.known(
        node, lost
    )
    fleet.wait_for("all slices train again", lambda: all(_newest(fleet, worker, 2) for worker in workers))
    firsts = [next(s.at for s in fleet.steps(JOB)[worker] if s.start > 1) for worker in workers]
    again = [sum(redone(fleet.steps(JOB)[worker])) for worker in workers]
    claimed = fleet.lab.objects(f"jobs/{JOB}/starts/")
    fleet.cancel(JOB)
    all_back = max(firsts) - lost
    return [
        Figure(
            "F9",
            f"{SLICES} slices, a third node free: all train again {all_back:.1f} s after the SIGKILL, "
            f"{(known or lost) - lost:.1f} s of them until it is known; {max(again)} steps made again, "
            f"{len(claimed)} starts ({load()})",
            all_back <= 25,
        )
    ]


def _slice(fleet: RunningFleet, node: str) -> int | None:
    """Return which slice of the task a node is, None for one that has no part of it."""
    body = fleet.lab.read(f"nodes/{node}/.tpuctl/share.json")
    found: int | None = json.loads(body).get("slice") if body else None
    return found


def _newest(fleet: RunningFleet, worker: str, start: int) -> bool:
    steps = fleet.steps(JOB).get(worker, [])
    return bool(steps) and steps[-1].start >= start
