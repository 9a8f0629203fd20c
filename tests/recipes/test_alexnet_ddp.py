"""examples/alexnet-ddp: killed, stopped and resumed, two processes have the losses of an unbroken run."""

import json
import os
import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.e2e.process_lab import ProcessLab, kill
from tests.recipes.kit import Recipe, RecipeCommand, losses, prepared
from tests.recipes.run import RUN_TIMEOUT, checkpoints_of, run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("alexnet-ddp")]
STEPS = 40


def start(recipe: Recipe, out: str, held_at: int | None = None, **more: str) -> RecipeCommand:
    """Start two processes by torchrun; settings are variables as in tpuctl.yaml."""
    settings = {"STEPS": str(STEPS), "SAVE_EVERY": "10", "LOG_EVERY": "1", "OUT": out, "KEEP": "2", **more}
    env = {f"ALEXNET_{key}": value for key, value in settings.items() if key != "RESUME"}
    resume = {"TPUCTL_RESUME": more["RESUME"]} if "RESUME" in more else {}
    command = "exec sh venv.sh torchrun --standalone --nproc-per-node=2 train.py"
    return recipe.start(command, held_at, **env, **resume)


def ranks(run: RecipeCommand) -> list[int]:
    """Return the processes that train."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            environ = (path / "environ").read_bytes() if path.name.isdigit() else b""
        except OSError:
            continue
        if f"RECIPE_RUN={run.log}\0".encode() in environ and b"\0LOCAL_RANK=" in environ:
            found.append(int(path.name))
    return sorted(found)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its images made."""
    one = prepared("alexnet-ddp", tmp_path_factory.mktemp("alexnet-ddp"), "sh venv.sh python images.py")
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> dict[int, str]:
    """Return the losses of a run that nothing interrupts."""
    found = losses(start(recipe, "straight").wait())
    assert list(found) == list(range(1, STEPS + 1))
    assert float(found[STEPS]) < float(found[1]) - 0.5
    assert len(list((recipe.folder / "straight").glob("step_*.pt"))) == 2
    return found


def test_killed_and_stopped_processes_resume_with_the_same_losses(recipe, straight):
    """
    SIGKILL of one process takes the other along; SIGTERM to the leader alone saves the step on all.

    The agent's choice goes before the pointer; empty, it means the beginning. Without it the pointer counts.
    """
    out = recipe.folder / "out"
    out.mkdir()
    for name in ("last.json", f"step_{STEPS:06d}.pt"):
        shutil.copy(recipe.folder / "straight" / name, out)
    run = start(recipe, "out", 13, RESUME="").until("^step 13 ")
    assert "starting from step 0" in run.text()
    _, second = ranks(run)
    os.kill(second, signal.SIGKILL)
    parts = [run.wait(1)]
    assert ranks(run) == []

    run = start(recipe, "out", 16).until("^step 16 ")
    run.process.send_signal(signal.SIGTERM)
    parts.append(run.wait(1))  # the ranks leave with 143, and torchrun makes 1 of it
    assert "resumed from step 10" in parts[-1]
    saved = int(re.findall(r"asked to stop: saved step (\d+)", parts[-1])[0])
    assert json.loads((out / "last.json").read_text())["step"] == saved
    assert 16 <= saved < 20
    assert losses("\n".join(parts)) == {step: straight[step] for step in range(1, saved + 1)}


def tear(lab: ProcessLab) -> None:
    """Let last.json name half a file, and kill the job: the agent must put it aside before the next start."""
    folder = checkpoints_of(lab, "alexnet-ddp-tpu-g1")
    whole = max(folder.glob("step_*.pt")).read_bytes()
    (folder / "step_000900.pt").write_bytes(whole[: len(whole) // 2])
    (folder / "last.json").write_text('{"step": 900, "file": "step_000900.pt"}')
    for pid in lab.jobs(b"train.py"):
        kill(pid)
    lab.wait_for("the second attempt", lambda: lab.at(11, attempt=2), RUN_TIMEOUT)
    assert not (folder / "step_000900.pt").exists()
    assert list(folder.parent.rglob("torn-step_000900*"))


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, straight):
    """A torn newest file, SIGKILL of the machine, notice with SIGTERM: the losses of an unbroken run."""
    settings = {
        "target_steps": STEPS, "env.ALEXNET_STEPS": STEPS, "env.ALEXNET_SAVE_EVERY": 10,
        "env.ALEXNET_LOG_EVERY": 1, "env.ALEXNET_PROCESSES": 2,
    }  # fmt: skip
    run = run_recipe(lab, "alexnet-ddp", saved=10, kill_at=13, notice_at=22, settings=settings, early=tear)
    assert run.losses() == straight
    assert "asked to stop: saved step" in run.logs[1]
    assert run.heartbeats[1]["committed_step"] == max(losses(run.logs[1])), "the notice must cost no step"
