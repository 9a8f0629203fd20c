"""
python -m benchmarks.scale: a pass over 1, 100, 1,000 and 10,000 nodes, and a storm that takes a tenth.

Each size is a process of its own. The part `scale` of docs/performance.md is written unless --print is given.
"""

import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from math import ceil

from benchmarks import document
from benchmarks.scale.fleet import Fleet, nodes_in
from benchmarks.scale.zones import PAGE, ZONES, Zones
from benchmarks.table import goal, table, words
from orchestrator.domain.names import DEPLOYMENT_LABEL
from orchestrator.google.shared_lists import ZoneLists

SIZES = (1, 100, 1000, 10_000)
PASSES = 3
CREATES_A_MINUTE = 60
"""What a project may ask for: the quota of the API is 91 mutating calls a minute."""
GOAL_SECONDS, GOAL_MB = 0.5, 200


@dataclass(frozen=True)
class Found:
    """What one size took; seconds are of computing."""

    nodes: int
    calls: int
    listing: float
    deciding: float
    megabytes: float
    storm: float
    lost: int
    answered: int


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


def _apart(size: int) -> Found:
    words = [sys.executable, "-m", "benchmarks.scale", str(size)]
    return Found(**json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout))


def measured(size: int) -> Found:
    """Return what a pass over *size* deployments with a node each takes."""
    fleet, calm, zones = Fleet(size), [], Zones(size)
    _listed(nodes_in(zones))  # the client is imported and made
    listing = statistics.median(_listed(nodes_in(zones)) for _ in range(PASSES))
    for _ in range(PASSES):
        zones.calls, nodes = 0, nodes_in(zones, ZoneLists(1e9))
        nodes.labelled(DEPLOYMENT_LABEL, "", ZONES)
        plans, seconds = _timed(lambda nodes=nodes: fleet.one_pass(nodes))
        calm.append(seconds)
        if any(plan.changes for plan in plans):
            raise RuntimeError("a calm fleet wants changes")
    megabytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    lost = max(1, size // 10)
    plans, storm = _timed(lambda: fleet.one_pass(nodes_in(Zones(size, lost), ZoneLists(1e9))))
    answered = sum(1 for plan in plans[:lost] if plan.changes)
    return Found(size, zones.calls, listing, statistics.median(calm), megabytes, storm, lost, answered)


def _listed(nodes: object) -> float:
    return _timed(lambda: nodes.labelled(DEPLOYMENT_LABEL, "", ZONES))[1]  # type: ignore[attr-defined]


def _timed(work: Callable[[], list]) -> tuple[list, float]:
    begun = time.process_time()
    return work(), time.process_time() - begun


def page(found: list[Found]) -> str:
    """Return the table and what it says about the goals."""
    heads = (
        "nodes",
        "list calls, shared",
        "each for itself",
        "list, s",
        "decide, s",
        "memory, MB",
        "storm, s",
    )
    rows = [
        (
            f"{one.nodes:,}", one.calls, f"{one.nodes * one.calls:,}", f"{one.listing:.2f}",
            f"{one.deciding:.2f}", f"{one.megabytes:.0f}",
            f"{one.storm:.2f} ({one.answered:,} of {one.lost:,} answered)",
        )
        for one in found
    ]  # fmt: skip
    about = words(
        f"Deployments with one node each, in {len(ZONES)} zones of one project, through Google's TPU",
        "client with ready answers in place of the API. A command watches one deployment, in a process of",
        "its own; one that reads many, as `tpuctl top` does, lists each zone once for all of them.",
        "Seconds are CPU time on one core. *Decide* is what a pass does for each deployment with the lists:",
        "look up, update the record, count the cost, decide. Its heartbeat is one list and one read of",
        "its own bucket, and is not counted.",
    )
    return "\n\n".join(("## Many nodes", about, table(heads, rows), "\n".join(_goals(found[0], found[-1]))))


def _goals(first: Found, last: Found) -> list[str]:
    pages = len(ZONES) * ceil(last.nodes / len(ZONES) / PAGE)
    each, minutes = 1e3 * last.deciding / last.nodes, last.lost / CREATES_A_MINUTE
    kilobytes = 1024 * (last.megabytes - first.megabytes) / last.nodes
    return [
        goal(f"List calls at {last.nodes:,} nodes", last.calls, pages, "a pass", ""),
        goal(
            f"A watcher of one deployment among {last.nodes:,} nodes", last.listing, GOAL_SECONDS, "s a pass",
            "The API has no filter, so the client reads every node, and it reads JSON in Python.",
        ),
        goal(
            f"All {last.nodes:,} in one process", last.listing + last.deciding, GOAL_SECONDS, "s a pass",
            f"Each deployment is evaluated again, which takes {each:.2f} ms; a pass does not check first whether"
            " anything has changed.",
        ),
        goal(
            "Memory", last.megabytes, GOAL_MB, f"MB ({kilobytes:.0f} KB a node, ready answers included)", "",
        ),
        words(
            f"Storm: all {last.lost:,} losses have their plan in the pass that shows them. At",
            f"{CREATES_A_MINUTE} creates a minute the last one is asked for after {minutes:.0f} min: the",
            "quota of the API decides.",
            item=True,
        ),
    ]  # fmt: skip


if __name__ == "__main__":
    main()
