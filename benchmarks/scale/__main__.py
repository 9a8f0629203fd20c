"""
python -m benchmarks.scale: a pass over 1, 100, 1,000 and 10,000 nodes, and a storm that takes a tenth.

Each size is a process of its own. The part `scale` of docs/performance.md is written unless --print is given.
"""

import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil
from pathlib import Path
from typing import TypeVar

from benchmarks import document
from benchmarks.scale.fleet import ManyDeployments, nodes_in
from benchmarks.scale.zones import PAGE, ZONES, Zones
from benchmarks.table import goal, table, words
from orchestrator.domain.names import DEPLOYMENT_LABEL
from orchestrator.threads import one_after_the_other
from tests.memory_disk import MEMORY

SIZES = (1, 100, 1000, 10_000)
PASSES = 3
CREATES_A_MINUTE = 60
"""What a project may ask for: the quota of the API is 91 mutating calls a minute."""
GOAL_SECONDS, GOAL_MB, GOAL_STORM = 0.5, 200, 2.0
WHY_MEMORY = "Each deployment has its loop, record, journal, lease and last look, and here its bucket too."
STEADY_TURNS = 2
"""Polls between two whole passes in which only the lists are looked at."""
T = TypeVar("T")


@dataclass(frozen=True)
class ScaleResult:
    """What one size took; seconds are of computing."""

    nodes: int
    calls: int
    first: float
    listing: float
    steady: float
    whole: float
    megabytes: float
    storm: float
    lost: int
    asked: int


def main() -> None:
    """Measure, print, and write the table."""
    if len(sys.argv) == 2 and sys.argv[1].isdigit():
        print(json.dumps(asdict(measured(int(sys.argv[1])))))
        return
    found = [_apart(size) for size in SIZES]
    text = page(found)
    print(text)
    if "--print" not in sys.argv:
        document.put("scale", text)


def _apart(size: int) -> ScaleResult:
    words = [sys.executable, "-m", "benchmarks.scale", str(size)]
    return ScaleResult(**json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))


def measured(size: int) -> ScaleResult:
    """Return what a pass over *size* deployments with a node each takes."""
    zones = Zones(size)
    nodes = nodes_in(zones)
    first = _timed(lambda: nodes.labelled(DEPLOYMENT_LABEL, "", ZONES))[1]
    listing = statistics.median(
        _timed(lambda: nodes.labelled(DEPLOYMENT_LABEL, "", ZONES))[1] for _ in range(PASSES)
    )
    with tempfile.TemporaryDirectory(dir=MEMORY) as folder, one_after_the_other():
        fleet = ManyDeployments(size, Path(folder))
        fleet.turn()
        # The second pass of each: what a first one learns has been written.
        whole = _whole(fleet, size)
        steady, calls = [], fleet.zones.calls
        for _ in range(STEADY_TURNS):
            turns, seconds = _timed(fleet.turn)
            steady.append(seconds)
            if turns:
                raise RuntimeError(f"{turns} deployments were not steady")
        calls = (fleet.zones.calls - calls) // STEADY_TURNS
        megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        lost = max(1, size // 10)
        _whole(fleet, size)
        fleet.zones.lose(lost)
        _, storm = _timed(fleet.turn)
    # Each preemption is one deletion and one create.
    asked = fleet.zones.changes // 2
    return ScaleResult(
        size,
        calls,
        first,
        listing,
        statistics.median(steady[:STEADY_TURNS]),
        whole,
        megabytes,
        storm,
        lost,
        asked,
    )


def _whole(fleet: ManyDeployments, size: int) -> float:
    """Let time pass until each deployment has made a whole pass; return what that took."""
    seconds = 0.0
    for _ in range(STEADY_TURNS + 2):
        turns, took = _timed(fleet.turn)
        if turns >= size:
            return took
        seconds += took
    raise RuntimeError("no whole pass was made")


def _timed(work: Callable[[], T]) -> tuple[T, float]:
    begun = time.process_time()
    return work(), time.process_time() - begun


def page(found: list[ScaleResult]) -> str:
    """Return the table and what it says about the goals."""
    heads = (
        "deployments", "pages of lists", "first list, s", "list again, s", "pass, nothing has changed, s",
        "whole pass of all, s", "memory, MB", "storm, s",
    )  # fmt: skip
    rows = [
        (
            f"{one.nodes:,}", one.calls, f"{one.first:.2f}", f"{one.listing:.2f}", f"{one.steady:.2f}",
            f"{one.whole:.2f}", f"{one.megabytes:.0f}",
            f"{one.storm:.2f} ({one.asked:,} of {one.lost:,} asked for)",
        )
        for one in found
    ]  # fmt: skip
    about = words(
        f"`tpuctl watch --all`: its loops over deployments with one node each, in {len(ZONES)} zones of one",
        "project, through Google's TPU client with ready answers in place of the API. Each bucket is",
        "in memory, so the network and the client of Cloud Storage are not in these figures. Seconds are CPU",
        "time on one core. In a pass in which nothing has changed only the lists are looked at, and who is",
        "due; a *whole pass* of each deployment reads reports and bucket, and is due every 45 s. In the",
        "*storm* a tenth of the nodes is lost at once: each preemption is listed, decided, written to record and",
        "journal on disk, and its deletion and the next create are sent.",
    )
    return "\n\n".join(("## Many nodes", about, table(heads, rows), "\n".join(_goals(found[0], found[-1]))))


def _goals(first: ScaleResult, last: ScaleResult) -> list[str]:
    pages = len(ZONES) * ceil(last.nodes / len(ZONES) / PAGE)
    each, minutes = 1e3 * last.whole / last.nodes, last.lost / CREATES_A_MINUTE
    kilobytes = 1024 * (last.megabytes - first.megabytes) / last.nodes
    one = 1e3 * last.storm / last.lost
    return [
        goal(f"Pages of lists at {last.nodes:,} nodes", last.calls, pages, "a pass", ""),
        goal(
            f"A pass over {last.nodes:,} deployments, nothing has changed", last.steady, GOAL_SECONDS, "s", "",
        ),
        goal(
            f"A watch of one deployment among {last.nodes:,} nodes", last.listing, GOAL_SECONDS, "s a pass",
            "The API has no filter, so every node is read.",
        ),
        goal("Memory", last.megabytes, GOAL_MB, f"MB ({kilobytes:.0f} KB a deployment)", WHY_MEMORY),
        goal(
            f"Storm of {last.lost:,} preemptions", last.storm, GOAL_STORM, "s",
            f"A preemption takes {one:.1f} ms: two requests by Google's client, and record and journal on disk.",
        ),
        words(
            f"A whole pass takes {each:.1f} ms of one core, so with one each 45 s a core is enough for",
            f"{45e3 / each:,.0f} deployments, less what the client of Cloud Storage takes for its reads.",
            "Above that whole passes come later; preemptions are still seen at the next list, and go first.",
            item=True,
        ),
        words(
            f"At {CREATES_A_MINUTE} creates a minute the last of {last.lost:,} preemptions is requested after",
            f"{minutes:.0f} min: the quota of the API decides. Here no budget holds them back.",
            item=True,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
