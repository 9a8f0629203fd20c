"""A job that is a Ray program: `tpuctl-ray` in its command."""

from pathlib import Path

from tests.agent.agent_lab import AgentLab, lines_of_the_job
from tests.agent.test_task_part import TASK, TaskNodes, heartbeats


def ray(folder: Path) -> str:
    """Make a program `ray` that prints how it is called, and runs the job's command on worker 0 as Ray does."""
    folder.mkdir(exist_ok=True)
    (folder / "ray").write_text(
        '#!/bin/sh\necho "ray $*, slice ${TPU_NAME-by metadata}"\n'
        'while [ "$1" != -- ]; do shift; done; shift\n[ "$TPUCTL_WORKER_ID" != 0 ] || exec "$@"\n'
    )
    (folder / "ray").chmod(0o755)
    return str(folder)


def test_all_workers_of_all_slices_start_ray_with_worker_0_of_the_first_as_its_head(lab: AgentLab) -> None:
    """The words are those of Ray 2.60; Ray itself runs the command on its head only."""
    command = f"PATH={ray(lab.folder / 'bin')}:$PATH; exec tpuctl-ray python3 train.py"
    fleet = TaskNodes(lab, COMMAND=command, _TPU_NAME="local")
    fleet.node("n-001")
    fleet.node("n-002")
    assert fleet.start("n-001", "n-002").wait() == 0
    fleet.machines["n-002", 1].until(
        lambda: heartbeats(lab, 1)[3]["phase"] == "done", "the last worker's end"
    )
    for worker in range(4):
        names = lab.names(f"{TASK}logs/g1/w{worker}/")
        lines = lines_of_the_job(b"".join(lab.read(name) for name in names).decode())
        assert lines[0] == (
            "ray symmetric-run --address 10.0.0.0:6379 --min-nodes 4 -- python3 train.py, slice by metadata"
        )
        assert ("trained" in lines) == (worker == 0)


def test_a_job_without_ray_says_where_it_comes_from(lab: AgentLab) -> None:
    """Nobody can see before whether the requirements bring it."""
    machine = lab.machine(COMMAND="exec tpuctl-ray python3 train.py", FAILURES=1)
    assert machine.start().wait() == 0
    assert machine.heartbeat()["phase"] == "failed"
    assert "tpuctl-venv -r requirements.txt -- tpuctl-ray" in lab.log()
