"""Drive a fleet's Slurm by its own commands on the VM, over SSH. Its queue is a copy of what the bucket says."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from orchestrator.domain.remote import Host, Remote
from orchestrator.domain.remote_script import MachinePath
from orchestrator.errors import RemoteError
from orchestrator.planning.fleet.deployments import SlurmController
from orchestrator.planning.fleet.gate import Correction
from orchestrator.planning.fleet.size import SlurmNode
from orchestrator.planning.fleet.tasks import After, SlurmTask, Submission
from orchestrator.planning.fleet.users import FleetUsers, accounts
from orchestrator.scripts.render import bash_word
from orchestrator.scripts.shipped import remote_script

T = TypeVar("T")
FOLDER = "slurm"
TIMEOUT = 90.0
"""Seconds for one command of Slurm over SSH: a busy Slurm controller answers late."""
FETCH_TIMEOUT = 900.0
"""Seconds to install the packages, on a VM that may still boot and update its package lists."""
_WIDTHS = {
    "Name": 128, "ArrayTaskID": 12, "State": 16, "RestartCnt": 8, "ArrayJobID": 16, "PriorityLong": 14,
    "Dependency": 240, "Account": 70, "QOS": 40, "NodeList": 80,
}  # fmt: skip
_COLUMNS = ",".join(f"{name}:.{width}" for name, width in _WIDTHS.items())
NOTHING = "(null)"
IDLE_REASON = "tpuctl-idle-g"
"""Drain reason of a node to be removed, followed by its incarnation; slurm.sh uses the same prefix."""
_AFTER = re.compile(r"(after\w+):(\d+)")


@dataclass
class Slurm:
    """
    Run Slurm's commands on the machine *host*. Every method raises RemoteError with Slurm's own message.

    If SSH to a remembered *host* fails, *elsewhere* returns the current one.
    """

    remote: Remote
    host: Host
    elsewhere: Callable[[], Host] | None = None

    def archive(self, script: bytes) -> str:
        """Install slurm.sh, upload Slurm's packages to the bucket, and return the name of their archive."""
        self._put(script, f"{FOLDER}/slurm.sh", 0o700)
        return self._run("engine", timeout=FETCH_TIMEOUT).strip().splitlines()[-1]

    def database(self) -> str:
        """Upload the packages of Slurm's database to the bucket, and return the name of their archive."""
        return self._run("database", timeout=FETCH_TIMEOUT).strip().splitlines()[-1]

    def start(
        self, name: str, nodes: int, zones: Sequence[str], slurm_controller: SlurmController,
        fleet_users: FleetUsers,
    ) -> None:  # fmt: skip
        """
        Start the Slurm controller and keep it running; with users or priorities, its database as well.

        *zones* are those in which nodes may be.
        """
        database = self.database() if fleet_users.needs_database else ""
        lines = (("may" if one.may_fail else "must", *one.words) for one in accounts(name, fleet_users))
        text = "".join(f"{' '.join(words)}\n" for words in lines)
        self._put(text.encode(), f"{FOLDER}/accounts")
        settings = {
            "FLEET_DATABASE": database,
            "FLEET_NAME": name, "FLEET_NODES": nodes, "FLEET_HEAD": slurm_controller.address,
            "FLEET_PORT": slurm_controller.port, "FLEET_ENGINE": slurm_controller.archive,
            "FLEET_ZONES": ",".join(zones),
        }  # fmt: skip
        text = "".join(f"{key}={bash_word(value)}\n" for key, value in settings.items())
        self._put(text.encode(), f"{FOLDER}/settings")
        self._run("head", timeout=FETCH_TIMEOUT)

    def submit(
        self, submission: Submission, numbers: Sequence[int], zones: Sequence[str], *,
        held: bool = False, after: Sequence[After] = (), under: tuple[str, str] = ("", ""),
    ) -> None:  # fmt: skip
        """
        Queue the tasks *numbers* of a job: *held*, or *after* other arrays.

        All slices of a task are in one of the *zones*. *under* names account and priority, if Slurm has them.
        """
        options = ["--hold"] if held else [f"--dependency={_joined(after)}"] if after else []
        if under[0]:
            options += [f"--account={under[0]}", f"--qos={under[1]}"]
        least, most = submission.slices
        if most > 1:
            # In brackets: all nodes of a task must have the same feature.
            one_zone = f"[{'|'.join(zones)}]" if len(zones) > 1 else zones[0]
            options += [f"--nodes={least}-{most}", f"--constraint={one_zone}"]
        target = f"{FOLDER}/job-{submission.name}"
        self._put(submission.script.encode(), target)
        self._run("submit", submission.name, MachinePath(target), ",".join(map(str, numbers)), *options)

    def queue(self) -> tuple[SlurmTask, ...]:
        """Return all tasks that wait or run."""
        found = []
        for line in self._run("call", "squeue", "-h", "-r", "-O", _COLUMNS).splitlines():
            # By column width, because columns are empty without a database.
            fields, at = {}, 0
            for column, width in _WIDTHS.items():
                fields[column], at = line[at : at + width].strip(), at + width
            if not fields["ArrayTaskID"].isdecimal():
                continue
            number, account = int(fields["ArrayTaskID"]), fields["Account"].replace(NOTHING, "")
            found.append(
                SlurmTask(
                    fields["Name"], number, fields["State"], fields["ArrayJobID"],
                    int(fields["RestartCnt"]), fields["NodeList"],
                    # Slurm holds a task by setting its priority to 0.
                    held=fields["PriorityLong"] == "0",
                    after=tuple(sorted(After(*found) for found in _AFTER.findall(fields["Dependency"]))),
                    account=account, priority=fields["QOS"] if account else "",
                )
            )  # fmt: skip
        return tuple(found)

    def correct(self, wrong: Correction) -> None:
        """Hold or release arrays, or make them wait for others."""
        arrays = ",".join(wrong.arrays)
        if wrong.verb == "after":
            self._run("call", "scontrol", "update", f"jobid={arrays}", f"dependency={_joined(wrong.after)}")
        else:
            self._run("call", "scontrol", wrong.verb, arrays)

    def cancel(self, tasks: Sequence[SlurmTask]) -> None:
        """Cancel tasks; those that run are asked to save first."""
        if tasks:
            self._run("call", "scancel", *(task.slurm_id for task in tasks))

    def lost(self, node: str, incarnation: int) -> None:
        """Report that a node's machine is lost, so that its task is queued again at once."""
        self._run("lost", node, str(incarnation))

    def nodes(self) -> dict[str, str]:
        """Return the state of each node, as sinfo prints it."""
        lines = self._run("call", "sinfo", "-h", "-N", "-o", "%N=%T").splitlines()
        return dict(line.strip().split("=", 1) for line in lines if "=" in line)

    def node_states(self) -> dict[str, SlurmNode]:
        """Return the full state of each node, by name."""
        return _node_states(self._run("nodes"))

    def drain(self, node: str, incarnation: int) -> SlurmNode:
        """Let no further task start on a node and return its state; a later machine of that name lifts it."""
        return _node_states(self._run("drain", node, str(incarnation))).get(node, SlurmNode())

    def returning(self, node: str, incarnation: int) -> None:
        """Say that a drained machine was deleted: the next one of the name may have tasks, and no other."""
        self._run("returning", node, str(incarnation))

    def undrain(self, node: str) -> None:
        """Allow tasks on a drained node again."""
        self._run("undrain", node)

    def tend(self) -> None:
        """Move tasks that have lost a machine to the front of the queue."""
        self._run("call", "tend")

    def _run(self, *words: str | MachinePath, timeout: float = TIMEOUT) -> str:
        script = remote_script("call-slurm", *words)
        (done,) = self._reached(lambda host: self.remote.run_elevated([host], script, timeout))
        if done.exit_code:
            said = done.stderr.strip()[-600:] or "it gave no reason"
            raise RemoteError(f"{self.host.name}: Slurm ({words[0]}): {said}", hint="run: tpuctl fleet up")
        return done.stdout

    def _put(self, data: bytes, target: str, mode: int = 0o600) -> None:
        self._reached(lambda host: self.remote.put([host], data, target, mode))

    def _reached(self, work: Callable[[Host], T]) -> T:
        """Do *work* on the remembered host, else on the current one; every command of slurm.sh can be repeated."""
        try:
            return work(self.host)
        except RemoteError:
            if self.elsewhere is None:
                raise
            before, self.host, self.elsewhere = self.host, self.elsewhere(), None
            if (before.name, before.address, before.port) == (
                self.host.name,
                self.host.address,
                self.host.port,
            ):
                raise
        return work(self.host)


def _joined(after: Sequence[After]) -> str:
    """Return dependencies as Slurm takes them, for example `afterok:7,afterany:9`."""
    return ",".join(map(str, after))


def _node_states(text: str) -> dict[str, SlurmNode]:
    """Parse the node states that slurm.sh prints: the time, then `scontrol -o show node` for each node."""
    now, found = 0.0, {}
    for line in text.splitlines():
        if line.strip().isdecimal():
            now = float(line)
            continue
        fields = dict(word.split("=", 1) for word in line.split() if "=" in word)
        busy, zone = fields.get("LastBusyTime", ""), fields.get("ActiveFeatures", "")
        if "NodeName" in fields:
            found[fields["NodeName"]] = SlurmNode(
                frozenset(fields.get("State", "").replace("*", "").split("+")),
                fields.get("Reason", "").startswith(IDLE_REASON),
                now - float(busy) if busy.isdecimal() else None,
                # Until its first machine has told, a node has all zones of the file.
                zone if re.fullmatch(r"[a-z0-9-]+", zone) else "",
            )
    return found
