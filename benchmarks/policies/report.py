"""
What a run found, in words and tables, and which goals it misses.
"""

from dataclasses import dataclass

from benchmarks.document import put
from benchmarks.policies import scenes
from benchmarks.policies.replay import Outcome, play
from benchmarks.policies.table import in_full, side_by_side, under_stress

ABOUT = """
## Recovery policies on recorded spot markets

One training job meets the spot markets of the past. tpuctl's rows run its real loop and its real decisions on a
clock that jumps; only the cloud and the disk are replaced. The others are small models of each tool's source code.
*kept* is progress that survives to the next checkpoint, *wall* is wall-clock time, *paid* is the time from READY to
the end of a machine. *omniscient* is somebody who knows the future and never loses work. The *delay* is what the
policy adds to a recovery in seconds: without the time the cloud needs, and without the time in which nobody had
capacity. It is below zero when the replacement is asked for before the old machine is gone.

A machine is READY after 180 s, a refusal takes 30 s, code 60 s, restore 120 s; a save every 600 s stops the job for
5 s. Each of three seeds plays another part of a record. All policies meet the same luck.

Limits, to keep in mind with every number:

- No public record of TPU preemptions is known. These are GPU markets on AWS (`benchmarks/traces/SOURCE.md`).
- A record says that one more machine would have started. It says little of lives shorter than its tick.
- The time until a TPU is READY was never published: it is a scenario, varied below.
- Other tools are models of their code, not the tools. tpuctl and SkyPilot are given zones in the order of price.
- Zones lie in three regions. One bucket then serves three regions: reading it from afar costs egress, left out here.
- A notice comes 30 s before the end. Where a row does not say so, the job of another tool has no last save on notice.
"""


@dataclass(frozen=True)
class Run:
    """
    Hold the outcomes of one run.
    """

    main: Outcome
    others: list[Outcome]
    stress: Outcome
    slower: list[Outcome]


def measure(hours: float | None, jobs: int) -> Run:
    """
    Play everything.
    """
    others, slower = scenes.other_scenes(hours), scenes.slower_scenes(scenes.HOURS)
    outcomes = play([scenes.main_scene(), *others, scenes.stress_scene(hours), *slower], jobs)
    cut = 1 + len(others)
    return Run(outcomes[0], outcomes[1:cut], outcomes[cut], outcomes[cut + 1 :])


def text(run: Run) -> str:
    """
    Return all tables.
    """
    stress = run.stress.scene.stress
    if stress is None:
        raise ValueError("the scene under stress has none")
    return "\n\n".join(
        (
            f"### {run.main.scene.title}: 45 days\n\nOmniscient: {run.main.bound:.3f} of wall-clock time.",
            in_full(run.main),
            "### Other markets",
            side_by_side(run.others),
            f"### A market as TPUs show it\n\nThe nine zones again, but {stress.accepted:.0%} of the requests are "
            f"taken, and half of the machines live {stress.shortest / 60:.0f} to {stress.longest / 60:.0f} min; the "
            "others as long as machines of two recorded groups. *wait/shortest* compares the time from a loss to "
            "the next machine with that of somebody who knows which request will be taken.",
            under_stress(run.stress),
            "### Faster and slower machines\n\nParts of the nine zones.",
            side_by_side(run.slower),
            "### Goals\n\n" + goals(run),
        )
    )


def goals(run: Run) -> str:
    """
    Say which goals are met, and by how much the others are missed.
    """
    race = run.main.results[scenes.RACE]
    tries = run.stress.results[scenes.RACE]
    lines = (
        _line("delay p50 at most 10 s", race.delay(0.5), 10.0, "s"),
        _line("delay p99 at most 30 s", race.delay(0.99), 30.0, "s"),
        _line("kept/omniscient at least 0.985", run.main.reached(scenes.RACE), 0.985, "", least=True),
        _line("kept/paid at least 0.98", race.kept / race.paid, 0.98, "", least=True),
        _line("under stress at most 6 creates for a machine", tries.creates / tries.accepted, 6.0, ""),
        _line("under stress wait/shortest at most 1.15", tries.waited / tries.soonest, 1.15, ""),
        "- cannot be shown: the goals on H100 of GCP, since that record is not in this folder",
    )
    return "\n".join(lines)


def _line(goal: str, value: float, limit: float, unit: str, *, least: bool = False) -> str:
    met = value >= limit if least else value <= limit
    shown = f"{value:,.0f} {unit}" if unit else f"{value:.3f}"
    missed = (
        "met"
        if met
        else f"missed by {abs(value - limit):,.0f} {unit}"
        if unit
        else f"missed by {abs(value - limit):.3f}"
    )
    return f"- {goal}: {shown}, {missed if not met else 'met'}"


def write(run: Run, seconds: float, jobs: int) -> None:
    """
    Write the part of docs/performance.md that this benchmark owns.
    """
    ran = f"Written by `python -m benchmarks.policies --write` in {seconds:.0f} s with {jobs} processes."
    put("policies", f"{ABOUT.strip()}\n\n{ran}\n\n{text(run)}")
