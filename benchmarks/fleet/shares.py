"""F10, F11 and F12: users with equal demand, an urgent job on a full fleet, and what the daemons take."""

import time
from pathlib import Path

from benchmarks.fleet.figures import Figure, load
from benchmarks.fleet.running_fleet import RunningFleet

MINUTES = 10.0
USERS = "{{alice@lab.org: {{share: 2}}, bob@lab.org: {{share: 1, nodes: {limit}}}}}"
ALICE, BOB = "alice@lab.org", "bob@lab.org"
DAEMONS = ("slurmd", "slurmctld", "munged", "slurmdbd", "mariadbd")
PRIORITIES = "{urgent: {over: normal, preempts: true}}"


def fleet_of(nodes: int) -> str:
    """Return the rest of the line `fleet` of a file: two users and a priority."""
    return f", users: {USERS.format(limit=nodes - 1)}, priorities: {PRIORITIES}"


def shares(fleet: RunningFleet) -> list[Figure]:
    """Let both want all of it: alice, who has twice bob's share, and bob, who may have all nodes but one."""
    for user in (ALICE, BOB):
        fleet.submit(user[0] * 3, 500, steps=10, every=10, pause=0.5, words=("--user", user))
    fleet.wait_for("both run", lambda: {*_running(fleet)} == {ALICE, BOB})
    time.sleep(60)  # Shares are counted once a minute.
    used, most, end = {ALICE: 0, BOB: 0}, 0, time.monotonic() + MINUTES * 60
    while time.monotonic() < end:
        running = _running(fleet)
        most = max(most, running.count(BOB))
        for user in used:
            used[user] += running.count(user)
        time.sleep(1)
    memory = sizes(fleet)
    share = used[BOB] / max(1, sum(used.values()))
    begun = time.time()
    words = ("--user", ALICE, "--priority", "urgent")
    fleet.submit("now", 1, steps=10, every=5, pause=0.5, more="slices: 2", words=words)
    asked = time.time()
    fleet.wait_for("the urgent task trains", lambda: sum(map(bool, fleet.steps("now").values())) == 2)
    urgent = max(made[0].at for made in fleet.steps("now").values())
    head = memory["slurmctld"] + memory["munged"]
    database = memory["slurmdbd"] + memory["mariadbd"]
    equal = (
        f"bob, with a third of the shares, has {share:.2f} of the time of {fleet.nodes} nodes in {MINUTES:g} min;"
        f" at most {most} of his {fleet.nodes - 1} nodes ({load()})"
    )
    quick = (
        f"both slices train {urgent - asked:.1f} s after `submit` has ended, {urgent - begun:.1f} s after it began"
        f" ({load()})"
    )
    small = (
        f"{memory['slurmd']:.0f} / {head:.0f} / {head + database:.0f}: Slurm's daemons and database, without system"
        " and agent"
    )
    return [
        Figure("F10", quick, urgent - asked <= 30),
        Figure("F11", equal, abs(share - 1 / 3) <= 0.1 and most <= fleet.nodes - 1),
        Figure("F12", small, memory["slurmd"] <= 15 and head <= 60 and head + database <= 250),
    ]


def _running(fleet: RunningFleet) -> list[str]:
    return fleet.slurm("squeue", "-h", "-r", "-t", "R", "-o", "%a").split()


def sizes(fleet: RunningFleet) -> dict[str, float]:
    """Return the mean resident megabytes of each of Slurm's daemons."""
    found: dict[str, list[float]] = {name: [] for name in DAEMONS}
    for pid, _ in fleet.lab.processes():
        try:
            name = Path(f"/proc/{pid}/comm").read_text().strip()
            lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        except OSError:
            continue
        if name in found:
            found[name].append(next((int(x.split()[1]) / 1024 for x in lines if x.startswith("VmRSS")), 0.0))
    return {name: sum(one) / len(one) if one else 0.0 for name, one in found.items()}
