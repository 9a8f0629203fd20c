"""F7 and F8: the Slurm controller is killed, and its VM is deleted with the disk, while tasks run."""

import os
import signal
import time
from pathlib import Path

from benchmarks.fleet.figures import Figure, load
from benchmarks.fleet.running_fleet import RunningFleet, redone

AGES = (0.5, 8.0, 20.0)
"""Seconds that the tasks have run when the Slurm controller is killed."""
KNOWN, COPIED, SETTLED = 300, 45.0, 60.0
"""Tasks in the queue; seconds in which its state is copied (slurm.sh keep), and in which nodes register anew."""


def controller_killed(fleet: RunningFleet) -> list[Figure]:
    """SIGKILL slurmctld when tasks on all nodes are of some age; cron or the watch starts it again."""
    answered, restarted, again, repeated, tasks = [], [], 0, 0, 0
    for age in AGES:
        name = f"killed-{age:g}".replace(".", "-")
        fleet.submit(name, fleet.nodes, steps=60, every=10, pause=0.5)
        fleet.wait_for("all tasks run", lambda name=name: len(fleet.steps(name)) == fleet.nodes)
        time.sleep(age)
        os.kill(fleet.slurm_controller(), signal.SIGKILL)
        killed = time.time()
        fleet.wait_for(
            "another Slurm controller",
            lambda: fleet.slurm_controller() and "UP" in fleet.slurm("scontrol", "ping"),
        )
        answered.append(time.time() - _began(fleet.slurm_controller()))
        restarted.append(time.time() - killed)
        fleet.wait_for("all tasks are done", lambda name=name: fleet.ended(name) == fleet.nodes)
        again += len(fleet.starts(name)) - fleet.nodes
        repeated += sum(sum(redone(steps)) for steps in fleet.steps(name).values())
        tasks += fleet.nodes
    ages, longest = ", ".join(f"{age:g}" for age in AGES), max(restarted)
    return [
        Figure(
            "F7",
            f"killed when {fleet.nodes} tasks had run {ages} s: {again} of {tasks} tasks began again ({repeated} "
            f"steps made twice), none lost; it answers {max(answered):.1f} s after its start, which is at most "
            f"{longest:.0f} s after the kill ({load()})",
            again == 0 and max(answered) <= 5 and max(restarted) <= 75,
        )
    ]


def vm_lost(fleet: RunningFleet) -> list[Figure]:
    """Delete the VM with its disk; the watch makes another one."""
    fleet.submit("known", KNOWN, steps=100_000, every=20, pause=0.5)
    fleet.wait_for("all nodes have a task", lambda: len(fleet.steps("known")) == fleet.nodes)
    time.sleep(COPIED)
    before = set(fleet.starts("known"))
    fleet.delete_vm()
    deleted = fleet.wait_for("the VM's end", lambda: not fleet.slurm_controller())
    back = fleet.wait_for("the next VM's Slurm controller", lambda: "UP" in fleet.slurm("scontrol", "ping"))
    known = fleet.wait_for("all tasks are known", lambda: _queued(fleet) == KNOWN)
    time.sleep(SETTLED)
    began = set(fleet.starts("known")) - before
    silent = [one for one, steps in fleet.steps("known").items() if time.time() - steps[-1].at > 10]
    fleet.cancel("known")
    return [
        Figure(
            "F8",
            f"with {fleet.nodes} nodes: Slurm answers {back - deleted:.0f} s after the deletion and knows "
            f"all {KNOWN} tasks after {known - deleted:.0f} s, the making of the VM included; of {len(before)} "
            f"that ran {len(began)} began again, {len(silent)} stand still ({load()})",
            not began and not silent and known - deleted <= 120,
        )
    ]


def _queued(fleet: RunningFleet) -> int:
    return len(fleet.slurm("squeue", "-h", "-r", "-n", "known", "-o", "%K").split())


def _began(process: int) -> float:
    """Return when a process began, in seconds since the epoch."""
    ticks = float(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19])
    boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime"))
    return float(boot.split()[1]) + ticks / os.sysconf("SC_CLK_TCK")
