"""
python -m benchmarks.fleet: lose machines under the real Slurm, write the part `fleet` of the page.

About ten minutes, as root on Debian or Ubuntu: it downloads Slurm and MariaDB from the distribution and unpacks
them into a folder of its own. --print writes nothing; --faster N replays the record N times as fast as it was.
"""

import argparse
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks import document
from benchmarks.fleet import runs
from benchmarks.fleet.slurm import Slurm, unpacked
from benchmarks.table import goal, table, words

MACHINES = 32
"""As many as the record holds at once."""
HOURS = (0.0, 9.0)
HOLD = "Slurm's hold of 10 s is long at this speed."
AGES = (0.5, 2.0, 4.0, 8.0)
"""How old the tasks are, in seconds, when the controller is killed."""


def main() -> None:
    """Measure, print, and write the part."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", dest="only_print", action="store_true")
    parser.add_argument("--faster", type=float, default=120.0)
    parser.add_argument("--packages", type=Path, default=Path.home() / ".cache" / "tpuctl" / "slurm")
    asked = parser.parse_args()
    tree = unpacked(asked.packages)
    with tempfile.TemporaryDirectory(prefix="bench-fleet-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        text = written(*measured(tree, folder, asked.faster), asked.faster)
    print(text)
    if not asked.only_print:
        document.put("fleet", text)


Figures = dict[str, float]


def measured(
    tree: Path, folder: Path, faster: float
) -> tuple[Figures, list[Figures], Figures, Figures, Figures]:
    """Return the figures of a lost machine, of killed controllers, of shares, of the replay, and of memory."""
    with fleet(tree, folder / "few", 4) as slurm:
        lost = runs.machine_lost(slurm, folder / "lost")
        killed = [runs.controller_killed(slurm, folder / f"killed-{age}", age) for age in AGES]
    with fleet(tree, folder / "users", 8, {"alice": "", "bob": "GrpTRES=node=6"}) as slurm:
        shares = runs.shares(slurm, folder / "shares")
        memory = slurm.memory()
    with fleet(tree, folder / "many", MACHINES) as slurm:
        replay = runs.replay(slurm, folder / "replay", faster, HOURS)
    return lost, killed, shares, replay, memory


def written(
    lost: Figures, killed: list[Figures], shares: Figures, replay: Figures, memory: Figures, faster: float
) -> str:
    """Return the part of the page."""
    about = words(
        "Slurm 22.05 from Debian's packages, each machine a real slurmd with what it has started; a machine that",
        f"is lost is killed with all of it. One run on {os.cpu_count()} cores. This is the ground of",
        "[decision 12](decisions/0012-slurm-for-a-fleet.md): Slurm alone, without tpuctl's agent and bucket.",
    )
    items = [
        words(
            f"A machine is lost and Slurm is told: the task waits again after {lost['requeued']:.2f} s, and makes",
            f"its next step elsewhere after {lost['back']:.1f} s; Slurm holds a requeued task for 10 s.",
            f"{lost['redone']:.0f} steps are made again, 10 is the distance of two saves.", item=True,
        ),
        words(
            "Users: alice has used the fleet before, bob has not; both want all of it. In the next minute bob gets",
            f"{shares['bob']:.0%} of it. His limit of 6 of 8 machines: {shares['most']:.0f} at most.", item=True,
        ),
        words(
            f"Memory in MB: slurmctld {memory['slurmctld']:.0f}, slurmd {memory['slurmd']:.0f} a machine;",
            f"only with users slurmdbd {memory['slurmdbd']:.0f} and MariaDB {memory['mariadbd']:.0f}.", item=True,
        ),
    ]  # fmt: skip
    rows = [
        (
            f"{run['age']:g} s old",
            f"{run['tasks']:.0f}",
            f"{run['done']:.0f}",
            f"{run['redone']:.0f}",
            f"{run['answered']:.1f}",
        )
        for run in killed
    ]
    heads = (
        "tasks, when the controller is killed",
        "there were",
        "done",
        "steps made again",
        "it answers after, s",
    )
    note = words(
        "Slurm writes its state up to 5 s late. Tasks that are older live through 8 s without a controller.",
        "Younger ones may be killed as orphans, or stay in its list for ever: the bucket must correct it.",
    )
    market = words(
        f"A record of {MACHINES} spot machines (AWS p3, hours {HOURS[0]:g} to {HOURS[1]:g}) at {faster:g} times",
        "its speed, tasks of 30 s, a save each 2.5 s, tasks that have lost a machine go first:",
        f"{replay['losses']:.0f} losses, {replay['restarts']:.0f} restarts. The machines worked",
        f"{replay['utilisation']:.3f} of the time,",
        f"{replay['goodput']:.3f} on steps that count. From the last step before a loss to the next one:",
        f"{replay['p50']:.1f} s (median), {replay['p99']:.1f} s (p99). {replay['redone']:.1f} steps are made again",
        f"for each loss, {replay['most']:.0f} at most; a save is {replay['every']:.0f} apart.",
    )
    goals = [
        goal("Tasks with overlapping attempts", replay["overlapping"], 0, "", "Slurm started one twice."),
        goal("Steps made again for a loss, at most", replay["most"], replay["every"] + 1, "", ""),
        goal("Idle or wasted time", 1 - replay["goodput"], 0.08, "of the machines' time", HOLD),
    ]  # fmt: skip
    parts = (
        "## Many machines under Slurm",
        about,
        "\n".join(items),
        table(heads, rows),
        note,
        market,
        "\n".join(goals),
    )
    return "\n\n".join(parts)


@contextmanager
def fleet(tree: Path, folder: Path, machines: int, users: dict[str, str] | None = None) -> Iterator[Slurm]:
    """Start a controller and its machines, wait until they take work, and end all of it."""
    slurm = Slurm(tree, folder, machines, users=users)
    try:
        for number in range(1, machines + 1):
            slurm.add(number)
        slurm.ready(machines)
        yield slurm
    finally:
        slurm.close()


if __name__ == "__main__":
    main()
