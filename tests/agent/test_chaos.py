"""
SIGKILL at every step of restore, commit and prune: to the agent, its job, both, the disk, the machine.

After each: the newest whole checkpoint never gets older, an attempt starts from the newest whole one, no two
jobs run at once, and the training ends in the same state as without a kill. `TPUCTL_CHAOS=full` plays all.
"""

import os
import re
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.agent.chaos_lab import AgentRun, KillPoint, chaos_lab
from tests.kit.figures import record_figures

FULL = os.environ.get("TPUCTL_CHAOS") == "full"
AT_A_TIME = 8
VICTIMS = ("agent", "job", "both", "disk", "machine")
NEW, OLD = "checkpoints/00000030/g2/w0", "checkpoints/00000010/g1/w0"
CHOSEN = (
    KillPoint("after GET checkpoints/00000020/g1/w0/part/weights.bin 1", "both"),
    KillPoint("before rename checkpoints/step-000020 1", "machine"),
    KillPoint("after rename checkpoints/step-000020 1", "agent"),
    KillPoint(f"after POST {NEW}/part/weights.bin 1", "job"),
    KillPoint(f"before POST {NEW}.manifest.json 1", "agent"),
    KillPoint(f"after POST {NEW}.manifest.json 1", "both"),
    KillPoint(f"before POST {NEW}/COMPLETE 1", "disk"),
    KillPoint("before replace state/stop 1", "agent"),
    KillPoint(f"after DELETE {OLD}.manifest.json 1", "machine"),
)
GANG = (KillPoint(f"before POST {NEW}.manifest.json 1", "slice"),)
READ = re.compile(r"after (GET|LIST) ")
POLLED = re.compile(r"\.tpuctl/gang/(\S*) ([2-9]|\d\d)$")


def test_a_kill_at_each_step_loses_nothing(tmp_path: Path) -> None:
    """One worker; each run has a machine, a bucket and a kill of its own."""
    begun = time.monotonic()
    kills = every_kill(tmp_path / "trace", 1, VICTIMS) if FULL else CHOSEN
    runs = play(tmp_path, kills, 1)

    report("agent", "An agent that is killed", kills, runs, begun)


def test_a_kill_of_one_of_four_workers_makes_no_half_checkpoint_the_newest(tmp_path: Path) -> None:
    """A slice of four; the kill falls on worker 0, or on one that follows."""
    begun = time.monotonic()
    kills: Sequence[KillPoint] = GANG
    if FULL:
        steps = [one for one in every_kill(tmp_path / "trace", 4, ("both", "slice")) if NEW in one.line]
        others = [KillPoint(one.line.replace("/w0", "/w2"), one.victim, 2) for one in steps]
        kills = [*steps, *(one for one in others if "DELETE" not in one.line)]
    runs = play(tmp_path, kills, 4)

    report("gang", "A slice of four workers, one of which is killed", kills, runs, begun)


def every_kill(folder: Path, workers: int, victims: Sequence[str]) -> list[KillPoint]:
    """
    Watch an undisturbed run, and return all its steps with all victims.

    Polls count once. The moment after a read is the moment before the next step: nothing has changed between
    them. The job is a victim once it has begun, with the third state/job.json.
    """
    with chaos_lab(folder, workers) as lab:
        run = lab.run(KillPoint("never", "agent"))
    assert run.wrong == ()
    begun = run.trace.index("after replace state/job.json 3")
    return [
        KillPoint(line, victim)
        for number, line in enumerate(run.trace)
        if not POLLED.search(line) and not READ.match(line)
        for victim in victims
        if victim != "job" or number >= begun
    ]


def play(folder: Path, kills: Sequence[KillPoint], workers: int) -> list[AgentRun]:
    """Return the runs, some of them made side by side."""

    def one(number: int, kill: KillPoint) -> AgentRun:
        with chaos_lab(folder / str(number), workers) as lab:
            return lab.run(kill)

    with ThreadPoolExecutor(max(1, AT_A_TIME // workers)) as pool:
        return list(pool.map(one, range(len(kills)), kills))


def report(part: str, title: str, kills: Sequence[KillPoint], runs: Sequence[AgentRun], begun: float) -> None:
    """
    Print the figures, and name every run in which something was wrong.

    Threads of the agent take turns, so that now and then a run has no step of that name.
    """
    fallen = sum(run.fell for run in runs)
    steps = {kill.line for kill, run in zip(kills, runs, strict=True) if run.fell}
    victims = Counter(kill.victim for kill, run in zip(kills, runs, strict=True) if run.fell)
    record_figures(
        part, title, "Real agents with a real job, SIGKILL at their requests and renames, by "
        "`pytest tests/agent/test_chaos.py`.", {
            "Steps of restore, commit and prune": len(steps),
            "Runs with a kill": fallen,
            **{f"- of {'the ' + name if name != 'both' else name}": count for name, count in victims.items()},
            "Runs that did not come by the step": len(runs) - fallen,
            "Checkpoints lost, torn ones chosen, second jobs": sum(bool(run.wrong) for run in runs),
            "Wall time": f"{time.monotonic() - begun:.0f} s",
        },
    )  # fmt: skip
    bad = [f"{kill}: {run.wrong}" for kill, run in zip(kills, runs, strict=True) if run.wrong]
    assert not bad, "\n".join(bad)
    assert fallen >= 0.9 * len(runs), [k for k, run in zip(kills, runs, strict=True) if not run.fell]
