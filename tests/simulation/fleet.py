"""
Runs of whole fleets: `python -m tests.simulation.fleet --seeds 0:1000 --jobs 2`, or one seed.

Real commands, adapters and official clients, the agent's own claims, fences and marks; the clock, the machines
and Slurm are models (tests/kit). Each run: faults, kills and errands, then calm, in which every task must end,
then `down`, after which nothing may be left. With 1 to 100 nodes.
"""

import argparse
import gc
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from orchestrator.app.source import wanted
from orchestrator.engine.loop import many_loops
from tests.kit.figures import commit, record_figures
from tests.kit.workers import workers
from tests.memory_disk import MEMORY
from tests.simulation.fleet_simulation import FleetSimulation
from tests.simulation.invariants import Violation
from tests.simulation.run import collecting_at_the_end

TICK = 5.0
"""Seconds between two looks of the watch at who is due, here: nothing in these runs is quicker."""

HOLDS = """Some fleets grow and shrink with their queue. In each run:

- a task has one mark at its end, and its newest checkpoint is of its last step;
- no two starts of a task have one number, none begins after its end, none commits after a newer one has begun;
- the newest step of a task never goes back;
- in calm each task that was not cancelled ends, whatever was held, forgotten, cancelled and tried again before;
- the queue has every open task after `up`, and none that has ended;
- a fleet that follows its queue keeps no node without work but `min_idle`;
- the bill stays within the budget, but for what runs while nobody looks;
- at most 60 creates of TPUs in a minute;
- after `down` no node and no VM is left, after `down --delete-data` no bucket."""


@dataclass
class SimulatedFleetRun:
    """What came of one seed. *violation* is empty when all invariants held."""

    seed: int
    violation: str = ""
    nodes: int = 0
    tasks: int = 0
    starts: int = 0
    commits: int = 0
    fenced: int = 0
    minutes: float = 0.0
    calls: int = 0
    lists: float = 0.0
    creates: int = 0
    seconds: float = 0.0
    events: Counter = field(default_factory=Counter)


@collecting_at_the_end()
def simulate(seed, trace=None):
    """Simulate the run of *seed*; *trace* gets each line of what happened."""
    began, run = time.process_time(), SimulatedFleetRun(seed)
    folder = Path(tempfile.mkdtemp(prefix="tpuctl-fleet-", dir=MEMORY))
    try:
        with ExitStack() as stack:
            stack.enter_context(patch.object(many_loops, "TICK", TICK))
            # Tens of megabytes for machines that are none.
            stack.enter_context(patch.object(wanted, "download_uv", lambda *_: None))
            simulation = FleetSimulation(seed, folder, trace or (lambda line: None))
            stack.enter_context(simulation.cloud.open())
            try:
                simulation.run()
            except Violation as violation:
                run.violation = str(violation)
            except Exception:  # a crash of the product is a violation too
                run.violation = traceback.format_exc()
            simulation.fill(run)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    run.seconds = time.process_time() - began
    return run


def figures(runs, wall):
    """Return the figures of many runs as pairs of name and value."""
    events = sum((run.events for run in runs), Counter())
    bad = [str(run.seed) for run in runs if run.violation]
    lost = sum("F1" in run.violation for run in runs)
    each = sum(run.seconds for run in runs) / max(1, len(runs))
    sizes = [run.nodes for run in runs]
    return {
        "Seeds, each a fleet from `up` to `down`": f"{len(runs):,}",
        "Violations": f"{len(bad)}" + (f" (seeds {', '.join(bad[:40])})" if bad else ""),
        "F1: runs with a task lost, or run twice and counted twice": f"{lost}",
        "Nodes (fewest, most, all runs)": f"{min(sizes)}, {max(sizes)}, {sum(sizes):,}",
        "Tasks, starts of tasks, commits": f"{sum(x.tasks for x in runs):,}, "
        f"{sum(x.starts for x in runs):,}, {sum(x.commits for x in runs):,}",
        "Commits that a fence has refused": f"{sum(x.fenced for x in runs):,}",
        "Most creates of TPUs within a minute (F13)": f"{max(x.creates for x in runs)}",
        "Most lists of one zone in a quiet minute (F13)": f"{max(x.lists for x in runs):.1f}",
        "Virtual hours, requests": f"{sum(x.minutes for x in runs) / 60:,.0f}, "
        f"{sum(x.calls for x in runs):,}",
        "Faults and errands": f"{sum(events.values()):,}",
        **{f"- {name}": f"{count:,}" for name, count in events.most_common()},
        "Wall time, processor time of a seed": f"{wall:.0f} s, {each:.2f} s",
    }


def main():
    """Read the command line and simulate."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fleet")
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--seeds", help="FIRST:LAST, the last one not included")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trace", type=Path, help="write what happens, a line for each command and event")
    chosen = parser.parse_args()
    began, runs = time.monotonic(), []
    if chosen.seeds:
        with workers(chosen.jobs, gc.disable) as pool:
            found = pool.map(simulate, range(*map(int, chosen.seeds.split(":"))), chunksize=1)
            runs = [_reported(run) for run in found]
    else:
        with (chosen.trace or Path("/dev/null")).open("w") as file:
            runs = [_reported(simulate(chosen.seed, lambda line: print(line, file=file, flush=True)))]
    about = f"{HOLDS}\n\nWritten by `python -m tests.simulation.fleet {' '.join(sys.argv[1:])}`."
    record_figures("fleet", "Fleets from seeds", about, figures(runs, time.monotonic() - began))
    return 1 if any(run.violation for run in runs) else 0


def _reported(run):
    if run.violation:
        print(f"fleet seed {run.seed} at {commit()}: {run.violation}")
        print(f"  replay: python -m tests.simulation.fleet {run.seed} --trace trace.txt", flush=True)
    return run


if __name__ == "__main__":
    sys.exit(main())
