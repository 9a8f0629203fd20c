"""
Lives of whole fleets: `python -m tests.simulation.fleet --seeds 0:1000 --jobs 2`, or one seed.

Real commands, adapters and official clients, the agent's own claims, fences and marks; the clock, the machines
and Slurm are models (tests/kit). Each life: faults, kills and errands, then calm, in which every task must end,
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
from tests.simulation.fleet_world import FleetLife, Wrong
from tests.simulation.life import collecting_at_the_end

TICK = 5.0
"""Seconds between two looks of the watch at who is due, here: nothing in these lives is quicker."""

HOLDS = """Some fleets grow and shrink with their queue. In each life:

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
class Life:
    """What came of one seed. *problem* is empty when all invariants held."""

    seed: int
    problem: str = ""
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
def live(seed, trace=None):
    """Live the life of *seed*; *trace* gets each line of what happened."""
    began, life = time.process_time(), Life(seed)
    folder = Path(tempfile.mkdtemp(prefix="tpuctl-fleet-", dir=MEMORY))
    try:
        with ExitStack() as stack:
            stack.enter_context(patch.object(many_loops, "TICK", TICK))
            # Tens of megabytes for machines that are none.
            stack.enter_context(patch.object(wanted, "download_uv", lambda *_: None))
            world = FleetLife(seed, folder, trace or (lambda line: None))
            stack.enter_context(world.cloud.open())
            try:
                world.live()
            except Wrong as wrong:
                life.problem = str(wrong)
            except Exception:  # a crash of the product is a violation too
                life.problem = traceback.format_exc()
            world.fill(life)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    life.seconds = time.process_time() - began
    return life


def figures(lives, wall):
    """Return the figures of many lives as pairs of name and value."""
    events = sum((life.events for life in lives), Counter())
    bad = [str(life.seed) for life in lives if life.problem]
    lost = sum("F1" in life.problem for life in lives)
    each = sum(life.seconds for life in lives) / max(1, len(lives))
    sizes = [life.nodes for life in lives]
    return {
        "Seeds, each a fleet from `up` to `down`": f"{len(lives):,}",
        "Violations": f"{len(bad)}" + (f" (seeds {', '.join(bad[:40])})" if bad else ""),
        "F1: lives with a task lost, or run twice and counted twice": f"{lost}",
        "Nodes (fewest, most, all lives)": f"{min(sizes)}, {max(sizes)}, {sum(sizes):,}",
        "Tasks, starts of tasks, commits": f"{sum(x.tasks for x in lives):,}, "
        f"{sum(x.starts for x in lives):,}, {sum(x.commits for x in lives):,}",
        "Commits that a fence has refused": f"{sum(x.fenced for x in lives):,}",
        "Most creates of TPUs within a minute (F13)": f"{max(x.creates for x in lives)}",
        "Most lists of one zone in a quiet minute (F13)": f"{max(x.lists for x in lives):.1f}",
        "Virtual hours, requests": f"{sum(x.minutes for x in lives) / 60:,.0f}, "
        f"{sum(x.calls for x in lives):,}",
        "Faults and errands": f"{sum(events.values()):,}",
        **{f"- {name}": f"{count:,}" for name, count in events.most_common()},
        "Wall time, processor time of a seed": f"{wall:.0f} s, {each:.2f} s",
    }


def main():
    """Read the command line and live."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation.fleet")
    parser.add_argument("seed", nargs="?", type=int, default=0)
    parser.add_argument("--seeds", help="FIRST:LAST, the last one not included")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--trace", type=Path, help="write what happens, a line for each command and event")
    chosen = parser.parse_args()
    began, lives = time.monotonic(), []
    if chosen.seeds:
        with workers(chosen.jobs, gc.disable) as pool:
            found = pool.map(live, range(*map(int, chosen.seeds.split(":"))), chunksize=1)
            lives = [_reported(life) for life in found]
    else:
        with (chosen.trace or Path("/dev/null")).open("w") as file:
            lives = [_reported(live(chosen.seed, lambda line: print(line, file=file, flush=True)))]
    about = f"{HOLDS}\n\nWritten by `python -m tests.simulation.fleet {' '.join(sys.argv[1:])}`."
    record_figures("fleet", "Fleets from seeds", about, figures(lives, time.monotonic() - began))
    return 1 if any(life.problem for life in lives) else 0


def _reported(life):
    if life.problem:
        print(f"fleet seed {life.seed} at {commit()}: {life.problem}")
        print(f"  replay: python -m tests.simulation.fleet {life.seed} --trace trace.txt", flush=True)
    return life


if __name__ == "__main__":
    sys.exit(main())
