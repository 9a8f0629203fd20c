"""`tpuctl-ray` with Ray itself, on one worker: what is lost starts again, nothing of Ray outlives an attempt."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.agent_lab import AgentMachine, running_lab

pytestmark = pytest.mark.recipes
RAY = "ray==2.60.0"
TRAIN = """\
import os, pathlib, time, ray
place, go = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"]), pathlib.Path("GO")
ray.init()
@ray.remote
def square(value):
    return value * value
for step in range(int(os.environ["TPUCTL_RESUME_STEP"] or 0) + 1, 9):
    while step == 5 and not go.exists():
        time.sleep(0.1)
    print("made step", step, ray.get(square.remote(step)), flush=True)
    folder = place / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model").write_text(str(step))
    (folder / "COMPLETE").write_text("")
"""


@pytest.fixture(scope="module")
def programs(tmp_path_factory) -> str:
    """Return the folder of programs of an environment with Ray."""
    folder = tmp_path_factory.mktemp("ray")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    subprocess.run([str(folder / "bin" / "pip"), "install", "-q", RAY], check=True)
    return str(folder / "bin")


def rays(machine: AgentMachine) -> dict[int, str]:
    """Return the processes of Ray that belong to the job."""
    names = {pid: os.fsdecode(words_of(pid)[0]) for pid in machine.job_processes()}
    return {pid: name for pid, name in names.items() if "/ray/core/src/" in name}


def words_of(pid: int) -> list[bytes]:
    """Return the command line of a process."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return [b""]


def test_what_a_killed_attempt_leaves_of_ray_is_cleared_before_the_next_one(
    programs: str, tmp_path: Path
) -> None:
    """Ray refuses to start beside another one: the second attempt has its own, and goes on from the checkpoint."""
    go = tmp_path / "GO"
    with running_lab(tmp_path / "lab") as lab:
        code = lab.put_bundle({"train.py": TRAIN.replace("GO", str(go)).encode()})
        command = f"PATH={programs}:$PATH; exec tpuctl-ray python3 train.py"
        machine = lab.machine(COMMAND=command, BUNDLE=code, TARGET_STEPS=8, STALL_SECONDS=600).start()
        machine.until_committed(4)
        first = rays(machine)
        assert {Path(name).name for name in first.values()} >= {"raylet", "gcs_server"}
        # Its daemons have sessions of their own, and nobody is left who would stop them.
        (leader,) = [pid for pid in machine.job_processes() if b"symmetric-run" in words_of(pid)]
        os.kill(leader, 9)
        machine.until(lambda: len(lab.attempts()) == 2, "the second attempt")
        go.touch()
        assert machine.wait() == 0
        assert machine.heartbeat()["phase"] == "done"
        assert lab.attempts()[1]["resume_step"] == 4
        assert "made step 8 64" in lab.log()
        assert rays(machine) == {}
