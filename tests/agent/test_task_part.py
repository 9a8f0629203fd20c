"""A task on several machines: Slurm starts it on one of them, the others follow, and one start fences them all."""

import json
import os
import shlex
import signal
from contextlib import suppress
from pathlib import Path

from orchestrator.agent.fleet.task import AGAIN
from orchestrator.agent.fleet.task_part import TASK_PART, VARIABLE, TaskPart, given
from orchestrator.contract.bucket.object_names import BUNDLES, ENDS, STARTS, SUBMISSIONS
from orchestrator.emulator.http.router import Request, Response
from tests.agent.agent_lab import AgentLab, AgentMachine, is_alive, lines_of_the_job

JOB, TASK = "jobs/wide/", "jobs/wide/tasks/0/"
MEGASCALE = "env | grep -E '^(MEGASCALE_|TPU_WORKER_)' | sort; "


class TaskNodes:
    """Nodes of two hosts each, whose followers run; what Slurm does is done by `start`."""

    def __init__(self, lab: AgentLab, **job: object) -> None:
        self.lab, self.machines = lab, {}
        lab.put(f"{JOB}{BUNDLES}{lab.code}.tar.gz", lab.read(f"{BUNDLES}{lab.code}.tar.gz"))
        (lab.folder / "template").mkdir()
        job_env = AgentMachine(lab, lab.folder / "template", {"TARGET_STEPS": 40, **job}).env
        own = ("TPUCTL_ROOT", "TPUCTL_WORKER_ID", "TPUCTL_WORKERS", "HOME", "TPUCTL_INCARNATION")
        lines = "".join(f"{key}={shlex.quote(value)}\n" for key, value in job_env.items() if key not in own)
        self.script = (
            'machine=$(cd "$(dirname "$0")" && pwd -P)\nmachine=${machine%/slurm/spool/*}\nset -a\n'
            f'{lines}. "$machine/machine.env"\nTPUCTL_ROOT=$machine/tasks/wide TPUCTL_TASK=0\n'
            f"TPUCTL_JOB_PREFIX={JOB} TPUCTL_PREFIX={TASK}\n"
            f'exec {shlex.join(AgentMachine.command(AgentMachine, "task"))} >>"$machine/agent.log" 2>&1\n'  # type: ignore[arg-type]
        )
        lab.put(f"{SUBMISSIONS}wide.json", json.dumps({"order": {"script": self.script}}).encode())

    def node(self, name: str) -> None:
        """Start the machines of a node, as its own deployment does: each of them follows."""
        hosts = f"10.0.0.{len(self.machines)},10.0.1.{len(self.machines)}"
        for worker in (0, 1):
            machine = self.lab.machine(
                f"{name}-w{worker}", WORKER_ID=worker, WORKERS=2, PREFIX=f"nodes/{name}/", WORKER_HOSTS=hosts
            )
            own = {key: machine.env[f"TPUCTL_{key}"] for key in ("WORKER_ID", "WORKERS", "WORKER_HOSTS")}
            text = "".join(f"TPUCTL_{key}={value}\n" for key, value in own.items())
            (machine.root / "machine.env").write_text(text)
            self.machines[name, worker] = machine.start(machine.command("follow"))
            self.lab.machines.append(_Task(machine.root))  # type: ignore[arg-type]

    def start(self, *nodes: str) -> AgentMachine:
        """Start the task on the first of the nodes."""
        first = self.machines[nodes[0], 0]
        slurm = self.lab.machine(f"{nodes[0]}-w0/slurm")
        script = first.root / "slurm" / "spool" / "job1" / "slurm_script"
        script.parent.mkdir(parents=True, exist_ok=True)
        script.write_text(self.script)
        numbers = ",".join(name.rpartition("-")[2] for name in nodes)
        slurm.env |= {"SLURMD_NODENAME": nodes[0], "SLURM_JOB_NODELIST": f"n-[{numbers}]"}
        return slurm.start(["bash", str(script)])


def heartbeats(lab: AgentLab, start: int) -> list[dict[str, object]]:
    """Return the reports of all workers of one start."""
    return [lab.json(name) for name in lab.names(f"{TASK}.tpuctl/heartbeat/{start}/")]


def test_two_slices_of_two_hosts_are_four_workers_of_one_claim(lab: AgentLab) -> None:
    """Each of them has the variables that JAX and libtpu read, and the end is marked once."""
    fleet = TaskNodes(lab, COMMAND=f"{MEGASCALE}exec python3 train.py")
    fleet.node("n-001")
    fleet.node("n-002")
    assert fleet.start("n-001", "n-002").wait() == 0
    assert lab.names(f"{JOB}{ENDS}") == [f"{JOB}{ENDS}0.done"]
    assert [(b["worker"], b["workers"]) for b in heartbeats(lab, 1)] == [(0, 4), (1, 4), (2, 4), (3, 4)]
    assert len(lab.names(f"{TASK}.tpuctl/gang/1/claim")) == 1
    # Both nodes are on the bill.
    assert lab.names(f"{JOB}{STARTS}") == [f"{JOB}{STARTS}0.1.n-00{n}" for n in (1, 2)]
    last = fleet.machines["n-002", 1]
    last.until(lambda: heartbeats(lab, 1)[3]["phase"] == "done", "the last worker's end")
    log = b"".join(lab.read(name) for name in lab.names(f"{TASK}logs/g1/w3/")).decode()
    assert lines_of_the_job(log)[:6] == [
        "MEGASCALE_COORDINATOR_ADDRESS=10.0.0.0", "MEGASCALE_NUM_SLICES=2", "MEGASCALE_PORT=8081",
        "MEGASCALE_SLICE_ID=1", "TPU_WORKER_HOSTNAMES=10.0.0.2,10.0.1.2", "TPU_WORKER_ID=1",
    ]  # fmt: skip


def test_a_worker_that_is_done_does_not_run_again_while_worker_0_has_not_reported_its_end(
    lab: AgentLab,
) -> None:
    """It would boot for a task that is over, and commit again what is committed."""
    fleet = TaskNodes(lab)
    fleet.node("n-001")
    looks = 0

    def held(request: Request) -> Response | None:
        nonlocal looks
        ended = bool(heartbeats(lab, 1)[1:]) and heartbeats(lab, 1)[1]["phase"] == "done"
        looks += ended and request.method == "GET" and "n-001" in request.path
        mine = request.query.get("name") == f"{TASK}.tpuctl/heartbeat/1/0"
        return Response(503) if mine and b'"phase": "done"' in request.body and looks < 6 else None

    lab.fault = held
    assert fleet.start("n-001").wait() == 0
    assert looks >= 6
    assert [b["phase"] for b in heartbeats(lab, 1)] == ["done", "done"]


def test_an_agent_that_is_killed_on_a_machine_that_follows_goes_on_from_its_record(lab: AgentLab) -> None:
    """Without it the next one would commit again what is committed, be refused, and hold up all the others."""
    go = lab.folder / "go"
    fleet = TaskNodes(lab, _WAITS_FOR=go)
    fleet.node("n-001")
    task = fleet.start("n-001")
    task.until(lambda: 1 in {worker for _, worker in committed(lab)}, "a commit of the machine that follows")
    (killed,) = [pid for pid in agents(fleet, "n-001") if _has(Path(f"/proc/{pid}"), b"TPUCTL_WORKER_ID=1")]
    os.kill(killed, signal.SIGKILL)
    go.touch()
    assert task.wait() == 0
    later = next(
        lab.json(name) for name in lab.names(f"{TASK}.tpuctl/gang/1/") if name.endswith("/000002.json")
    )
    assert "the agent was killed" in later["reason"]


def test_one_slice_of_two_hosts_has_no_variables_of_several(lab: AgentLab) -> None:
    """There libtpu asks the metadata server."""
    fleet = TaskNodes(lab, COMMAND=f"{MEGASCALE}exec python3 train.py")
    fleet.node("n-001")
    assert fleet.start("n-001").wait() == 0
    log = b"".join(lab.read(name) for name in lab.names(f"{TASK}logs/g1/w0/")).decode()
    assert [(b["worker"], b["workers"]) for b in heartbeats(lab, 1)] == [(0, 2), (1, 2)]
    assert "begin after 0" in log


def test_a_new_start_takes_the_living_nodes_along_and_no_other_commits(lab: AgentLab) -> None:
    """A slice that was cut off wakes up to a newer start: what it has made since is not committed."""
    fleet = TaskNodes(lab, TARGET_STEPS=100000, _STEPS=100000, _STEP_SECONDS=0.05)
    for name in ("n-001", "n-002", "n-003"):
        fleet.node(name)
    first = fleet.start("n-001", "n-002")
    first.until(lambda: {2, 3} <= {worker for _, worker in committed(lab)}, "saves of the second node")
    paused = [pid for worker in (0, 1) for pid in jobs(fleet, "n-002", worker)]
    for pid in paused:
        os.kill(pid, signal.SIGSTOP)
    # What was saved before it is cut off may still be on its way, and arrive when it wakes up.
    saved = {(step, 2 + worker) for worker in (0, 1) for step in saves(fleet, "n-002", worker)}
    before = {one for one in committed(lab) if one[1] > 1} | saved
    for pid in agents(fleet, "n-002"):
        os.kill(pid, signal.SIGSTOP)
        paused.append(pid)
    assert first.process is not None
    first.process.send_signal(signal.SIGTERM)  # as Slurm does when a node of the task is down
    assert first.wait() == AGAIN
    second = fleet.start("n-001", "n-003")
    second.until(lambda: len(heartbeats(lab, 2)) == 4, "all four workers of the second start")
    for pid in paused:
        os.kill(pid, signal.SIGCONT)
    late = fleet.machines["n-002", 1]
    late.until(lambda: not jobs(fleet, "n-002", 0) + jobs(fleet, "n-002", 1), "the end of the late jobs")
    assert {one for one in committed(lab) if one[1] > 1} <= before
    assert {b["incarnation"] for b in heartbeats(lab, 2)} == {2}


def test_a_task_that_is_cancelled_stops_on_all_machines(lab: AgentLab) -> None:
    """Slurm ends it on the first one; no new start comes that would fence the others."""
    fleet = TaskNodes(lab, TARGET_STEPS=100000, _STEPS=100000, _STEP_SECONDS=0.05)
    fleet.node("n-001")
    fleet.node("n-002")
    first = fleet.start("n-001", "n-002")
    first.until(lambda: len(heartbeats(lab, 1)) == 4 and jobs(fleet, "n-002", 1), "all four workers")
    assert first.process is not None
    first.process.send_signal(signal.SIGTERM)
    assert first.wait() == AGAIN
    first.until(
        lambda: {heartbeat["phase"] for heartbeat in heartbeats(lab, 1)} == {"stopped"}, "the end of all"
    )
    assert [one for node, worker in fleet.machines for one in jobs(fleet, node, worker)] == []


def test_a_machine_that_wakes_up_before_it_has_given_out_its_shares_is_over(lab: AgentLab) -> None:
    """Slurm has given its node to another task meanwhile."""
    fleet = TaskNodes(lab)
    fleet.node("n-001")
    later = {"job": "other", "task": "7", "incarnation": 1, "slice": 0, "slices": 1}
    rest = {"coordinator": "10.0.0.9", "heartbeat": 1.0, "at": 1e11}
    lab.put(f"nodes/n-001/{TASK_PART}", json.dumps({**later, **rest}).encode())
    assert fleet.start("n-001").wait() == AGAIN
    assert lab.json(f"nodes/n-001/{TASK_PART}")["job"] == "other"


def test_slurm_takes_a_machine_from_a_task_that_it_only_follows(lab: AgentLab) -> None:
    """One machine has one task, and its TPU one process."""
    fleet = TaskNodes(lab, TARGET_STEPS=100000, _STEPS=100000, _STEP_SECONDS=0.05)
    for name in ("n-001", "n-002", "n-003"):
        fleet.node(name)
    first = fleet.start("n-001", "n-002")
    first.until(lambda: jobs(fleet, "n-002", 0), "the job on the second node")
    followed = jobs(fleet, "n-002", 0)[0]
    second = fleet.start("n-002", "n-003")
    second.until(lambda: set(jobs(fleet, "n-002", 0)) - {followed}, "the new job")
    assert followed not in jobs(fleet, "n-002", 0)
    assert "has another task on this machine, which is over" in fleet.machines["n-002", 0].agent_log()


def committed(lab: AgentLab, incarnation: int = 1) -> set[tuple[int, int]]:
    """Return (step, worker) of each part of a checkpoint that a start has committed."""
    parts = (name.split("/") for name in lab.names(f"{TASK}checkpoints/") if name.endswith(".manifest.json"))
    return {(int(p[-3]), int(p[-1][1:].split(".")[0])) for p in parts if p[-2] == f"g{incarnation}"}


def saves(fleet: TaskNodes, node: str, worker: int) -> set[int]:
    """Return the steps that lie finished on one machine."""
    folder = fleet.machines[node, worker].root / "tasks" / "wide" / "checkpoints"
    return {int(one.parent.name.split("-")[1]) for one in folder.glob("step-*/COMPLETE")}


def jobs(fleet: TaskNodes, node: str, worker: int) -> list[int]:
    """Return the processes of the task on one machine."""
    root = fleet.machines[node, worker].root / "tasks" / "wide"
    return AgentMachine.job_processes(_At(root))  # type: ignore[arg-type]


def agents(fleet: TaskNodes, node: str) -> list[int]:
    """Return the agents that run the task on the machines of a node."""
    locks = [fleet.machines[node, worker].root / "tasks" / "lock" for worker in (0, 1)]
    return [int(lock.read_text().split()[0]) for lock in locks]


class _Task:
    """What runs on a machine in a session of its own, which the end of a test has to reach too."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def kill_all(self) -> None:
        mark = f"HOME={self._folder}".encode()
        while remaining := [
            int(one.name) for one in Path("/proc").iterdir() if one.name.isdigit() and _has(one, mark)
        ]:
            for pid in remaining:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def _has(process: Path, mark: bytes) -> bool:
    try:
        return mark in (process / "environ").read_bytes().split(b"\0") and is_alive(int(process.name))
    except OSError:
        return False


class _At:
    def __init__(self, root: Path) -> None:
        self.root = root


def test_a_stored_share_calls_the_number_of_the_start_an_incarnation() -> None:
    """Nodes with an agent of before read the parts of today, and these read theirs."""
    part = TaskPart("wide", "0", 3, 0, 2, "10.0.0.1", 1.0, 5.0)
    assert json.loads(part.stored()) == {
        "job": "wide", "task": "0", "incarnation": 3, "slice": 0, "slices": 2, "coordinator": "10.0.0.1",
        "heartbeat": 1.0, "at": 5.0,
    }  # fmt: skip
    assert given({VARIABLE: part.stored()}) == part
