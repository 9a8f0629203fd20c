"""A task of a fleet: whatever the queue forgets or starts twice, it counts once, and goes on where it was."""

import os
import shutil
import signal
from pathlib import Path

from orchestrator.agent.agreement.attempts import AttemptStore
from orchestrator.agent.cloud.metadata import Metadata
from orchestrator.agent.cloud.storage import JobBucket
from orchestrator.agent.fleet.task import AGAIN, claim_number
from orchestrator.agent.settings import read_settings
from orchestrator.contract.bucket.limits import COLLECTED_BYTES
from orchestrator.contract.bucket.object_names import BUNDLES, COLLECTED, ENDS, STARTS
from orchestrator.emulator.machines.machine_python import base_interpreter, install_python, programs
from orchestrator.scripts.uv_program import shared_folder
from tests.agent.agent_lab import BUCKET, AgentLab, AgentMachine
from tests.agent.test_caches import SETUP, WORKS
from tests.agent.test_venv import package

JOB, TASK = "jobs/sweep/", "jobs/sweep/tasks/3/"


def node(lab: AgentLab, name: str, **changes: object) -> AgentMachine:
    """Return a node that runs task 3 of the job; its machine has no other tasks."""
    own = {"PREFIX": TASK, "JOB_PREFIX": JOB, "TASK": "3", **changes}
    machine = lab.machine(f"{name}/tasks/sweep", **own)
    lab.put(f"{JOB}{BUNDLES}{lab.code}.tar.gz", lab.read(f"{BUNDLES}{lab.code}.tar.gz"))
    return machine


def start(machine: AgentMachine) -> AgentMachine:
    """Let Slurm start the task."""
    return machine.start(machine.command("task"))


def committed(lab: AgentLab) -> list[str]:
    """Return the manifests of the task's checkpoints."""
    return [one for one in lab.names(f"{TASK}checkpoints/") if one.endswith(".manifest.json")]


def claims(lab: AgentLab) -> list[str]:
    """Return the starts of the task."""
    return [one for one in lab.names(f"{TASK}.tpuctl/gang/") if one.endswith("claim.json")]


def test_a_task_that_has_ended_is_recorded_and_never_run_again(lab: AgentLab) -> None:
    """Also when Slurm has lost its state and starts it once more, on another machine."""
    assert start(node(lab, "a", TARGET_STEPS=20, _STEPS=20)).wait() == 0
    assert lab.names(f"{JOB}{ENDS}") == [f"{JOB}{ENDS}3.done"]
    saved = committed(lab)
    assert saved
    assert start(node(lab, "b", TARGET_STEPS=20, _STEPS=20)).wait() == 0
    assert (committed(lab), len(claims(lab))) == (saved, 1)


def test_a_task_that_was_given_up_is_recorded_as_failed(lab: AgentLab) -> None:
    """Its exit status reports it to Slurm."""
    assert start(node(lab, "a", FAILURES=1, COMMAND="exit 3")).wait() == 1
    assert lab.names(f"{JOB}{ENDS}") == [f"{JOB}{ENDS}3.failed"]


def test_a_machine_that_wakes_up_late_commits_nothing_more(lab: AgentLab) -> None:
    """The task has gone on elsewhere meanwhile, from the last checkpoint; the late one leaves."""
    late = start(node(lab, "a", TARGET_STEPS=100000, _STEPS=100000, _STEP_SECONDS=0.02))
    late.until(lambda: committed(lab), "something committed")
    assert late.process is not None
    stopped = [late.process.pid, *late.job_processes()]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    before = committed(lab)
    assert start(node(lab, "b", TARGET_STEPS=400, _STEPS=400, _STEP_SECONDS=0.005)).wait() == 0
    after = committed(lab)
    resumed = lab.json(f"{TASK}.tpuctl/gang/2/000001.json")["resume_step"]
    assert resumed is not None
    assert any(f"{resumed:06d}" in one or f"/{resumed}/" in one for one in before)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert late.wait() == AGAIN
    assert committed(lab) == after
    assert lab.names(f"{JOB}{ENDS}") == [f"{JOB}{ENDS}3.done"]


def test_two_starts_at_the_same_moment_have_two_numbers(lab: AgentLab) -> None:
    """The later number fences the earlier one at once, before it has made its first attempt."""
    machine = node(lab, "a")
    environ = {"STORAGE_EMULATOR_HOST": lab.url, "TPUCTL_PREFIX": TASK}
    bucket = JobBucket.from_environ(BUCKET, environ, Metadata(lab.metadata.address))
    level = bucket.level
    # Both have listed before either has written.
    bucket.level = lambda prefix, timeout=1.0: ([], [])  # type: ignore[method-assign]
    assert [claim_number(bucket, {}), claim_number(bucket, {})] == [1, 2]
    bucket.level = level  # type: ignore[method-assign]
    first = read_settings({**machine.env, "TPUCTL_INCARNATION": "1"})
    assert AttemptStore(first, bucket).newer_incarnation() == 2


def test_each_start_leaves_a_mark_with_its_node(lab: AgentLab) -> None:
    """So that one list of a job shows what ran when and where."""
    assert start(node(lab, "a", TARGET_STEPS=20, _STEPS=20, _SLURMD_NODENAME="n-001")).wait() == 0
    assert lab.names(f"{JOB}{STARTS}") == [f"{JOB}{STARTS}3.1.n-001"]


def test_small_files_of_a_task_are_stored_for_the_table_and_never_those_of_another(lab: AgentLab) -> None:
    """The machine's folder is used by one task after the other; a large file is left out."""
    machine = node(
        lab, "a", COLLECT="metrics.json:none.json:big.json", FAILURES=1,
        COMMAND=f"echo '{{}}' >metrics.json; head -c {COLLECTED_BYTES + 1} /dev/zero >big.json; exit 3",
    )  # fmt: skip
    assert start(machine).wait() == 1
    assert lab.names(f"{JOB}{COLLECTED}") == [f"{JOB}{COLLECTED}3.1.0"]
    assert lab.read(f"{JOB}{COLLECTED}3.1.0") == b"{}\n"
    machine.env.update(
        {"TPUCTL_TASK": "4", "TPUCTL_PREFIX": "jobs/sweep/tasks/4/", "TPUCTL_COMMAND": "exit 3"}
    )
    assert start(machine).wait() == 1
    assert lab.names(f"{JOB}{ENDS}") == [f"{JOB}{ENDS}3.failed", f"{JOB}{ENDS}4.failed"]
    assert lab.names(f"{JOB}{COLLECTED}4") == []


def test_tasks_of_one_job_have_their_packages_in_common_on_all_nodes(lab: AgentLab, tmp_path: Path) -> None:
    """What one node has installed another one finds, for another task: its setup needs no wheel any more."""
    wheels, files = tmp_path / "wheels", lab.folder / "files"
    package(wheels, "first_package")

    def run(task: int) -> AgentMachine:
        shutil.rmtree(files, ignore_errors=True)
        shutil.rmtree(lab.folder / "m", ignore_errors=True)
        install_python(files, base_interpreter(), shared_folder() / "pip")
        own = {"PREFIX": f"{JOB}tasks/{task}/", "TASK": str(task), "SETUP": SETUP.format(wheels=wheels)}
        path = f"{programs(files)}:/usr/bin:/bin"
        return start(node(lab, "m", WARM_START=1, COMMAND=WORKS, _STEPS=100_000, _PATH=path, **own))

    first = run(3)
    first.until(lambda: lab.names(f"{JOB}caches/environment/"), "the packages are in the bucket")
    first.kill_all()
    shutil.rmtree(wheels)
    run(4).until(lambda: lab.names(f"{JOB}tasks/4/checkpoints/"), "a save")
    assert [name for name in lab.names(f"{JOB}tasks/") if "caches/" in name] == []
