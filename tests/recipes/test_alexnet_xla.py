"""
examples/alexnet-xla: eight replicas on two cores, killed, stopped and resumed, keep the losses of one run.

Opt-in: TPUCTL_RECIPES=xla. The environment has 6.5 GB, and each start compiles for half a minute.
"""

import json
import os
import re
import signal
from pathlib import Path

import pytest

from tests.recipes.kit import EXAMPLES, Recipe, RecipeCommand, losses, prepared
from tests.recipes.run import run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("xla")]
STEPS = 24
SETTINGS = {"ALEXNET_STEPS": str(STEPS), "ALEXNET_SAVE_EVERY": "8", "ALEXNET_LOG_EVERY": "1"}
TIMEOUT = 600  # seconds: each start compiles, and the machine may be busy


def start(recipe: Recipe, out: str, **more: str) -> RecipeCommand:
    """Start the training; settings are variables as in tpuctl.yaml."""
    return recipe.start("exec sh venv.sh python train.py", **SETTINGS, ALEXNET_OUT=out, **more)


def spawned(run: RecipeCommand) -> list[int]:
    """Return the processes of a run that multiprocessing has started."""
    found = []
    for path in Path("/proc").iterdir():
        try:
            mine = (
                path.name.isdigit() and f"RECIPE_RUN={run.log}\0".encode() in (path / "environ").read_bytes()
            )
            if mine and b"spawn_main" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its images made."""
    one = prepared("alexnet-xla", tmp_path_factory.mktemp("alexnet-xla"), "sh venv.sh python images.py")
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> dict[int, str]:
    """Return the losses of a run that nothing interrupts."""
    text = start(recipe, "straight").wait(0, TIMEOUT)
    assert "starting from step 0 with 8 replicas on CPU" in text
    found = losses(text)
    assert list(found) == list(range(1, STEPS + 1))
    assert float(found[STEPS]) < float(found[1]) - 0.1
    return found


def test_killed_and_stopped_replicas_resume_with_the_same_losses(recipe, straight):
    """SIGKILL after a save; SIGTERM to the leader alone saves and ends the replicas; then to the end."""
    run = start(recipe, "out", ALEXNET_STEP_SECONDS="0.3").until("^step 10 ", TIMEOUT)
    run.kill()
    parts = [run.text()]

    run = start(recipe, "out", ALEXNET_STEP_SECONDS="0.5").until("^step 12 ", TIMEOUT)
    assert spawned(run)
    run.process.send_signal(signal.SIGTERM)
    parts.append(run.wait(128 + signal.SIGTERM, TIMEOUT))
    assert spawned(run) == []
    assert "resumed from step 8" in parts[-1]
    saved = int(re.findall(r"asked to stop: saved step (\d+)", parts[-1])[0])
    assert (
        saved == json.loads((recipe.folder / "out/last.json").read_text())["step"] == max(losses(parts[-1]))
    )

    parts.append(start(recipe, "out").wait(0, TIMEOUT))
    assert f"resumed from step {saved}" in parts[-1]
    assert losses("\n".join(parts)) == straight


def test_dead_replicas_are_a_failure(recipe, straight):
    """When the process of the replicas is killed, the leader says so with its status and does not hang."""
    run = start(recipe, "dead", ALEXNET_STEP_SECONDS="0.3").until("^step 9 ", TIMEOUT)
    for pid in spawned(run):
        os.kill(pid, signal.SIGKILL)
    assert "BrokenProcessPool" in run.wait(1, TIMEOUT)


def test_the_recipes_on_xla_share_one_environment():
    """Equal lists have equal checksums, so 6.5 GB are installed once."""
    lists = {(EXAMPLES / name / "requirements.txt").read_bytes() for name in (
        "alexnet-xla", "hf-clm-xla", "fairseq-mlm-xla",
    )}  # fmt: skip
    assert len(lists) == 1


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, straight):
    """SIGKILL of the machine, notice with SIGTERM: the losses of an unbroken run."""
    settings = {"target_steps": STEPS, "env.ALEXNET_STEP_SECONDS": 1}
    settings.update({f"env.{key}": value for key, value in SETTINGS.items()})
    run = run_recipe(lab, "alexnet-xla", saved=8, notice_at=13, settings=settings, timeout=TIMEOUT)
    assert run.losses() == straight
    assert "asked to stop: saved step" in run.logs[1]
    assert run.heartbeats[1]["committed_step"] == max(losses(run.logs[1])), "the notice must cost no step"
