"""
examples/hf-clm-xla: the Trainer's GPT-2 on PyTorch/XLA, killed and stopped, goes on close to an unbroken run.

Opt-in: TPUCTL_RECIPES=xla. The environment has 6.5 GB.
"""

import re
import signal
from pathlib import Path

import pytest

from tests.recipes.kit import Recipe, RecipeCommand, prepared
from tests.recipes.run import run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("xla")]
STEPS = 40
FLAGS = (
    f"--max_steps {STEPS} --per_device_train_batch_size 8 --learning_rate 3e-3 --warmup_steps 10 "
    "--save_steps 10 --save_total_limit 3 --logging_steps 1 --seed 42 --report_to none"
)
TIMEOUT = 600  # seconds: each start compiles, and the machine may be busy
# A resumed run compiles other programs than one that starts: sums are rounded elsewhere.
CLOSE = 1e-3


def start(recipe: Recipe, out: str, resume: str = "", more: str = "") -> RecipeCommand:
    """Start the training as tpuctl.yaml does, resuming from *resume*."""
    words = f'--output_dir {out} --resume_from_checkpoint "{resume}"'
    return recipe.start(f"exec sh venv.sh python train.py {words} {FLAGS} {more}")


def losses(*texts: str) -> dict[int, float]:
    """Return the loss of each step; one that was trained twice must have had nearly the same twice."""
    found: dict[int, float] = {}
    for step, loss in re.findall(r"^step (\d+) loss (\S+)$", "\n".join(texts), re.MULTILINE):
        assert float(loss) == pytest.approx(found.setdefault(int(step), float(loss)), abs=CLOSE)
    return found


def newest(recipe: Recipe, out: str) -> Path:
    """Return the newest checkpoint that was written to its end, by the Trainer's own last file."""
    whole = [path.parent for path in (recipe.folder / out).glob("checkpoint-*/trainer_state.json")]
    return max(whole, key=lambda path: int(path.name.split("-")[1]))


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its data made."""
    one = prepared("hf-clm-xla", tmp_path_factory.mktemp("hf-clm-xla"), "sh venv.sh python corpus.py")
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> dict[int, float]:
    """Return the losses of a run that nothing interrupts."""
    found = losses(start(recipe, "straight").wait(0, TIMEOUT))
    assert list(found) == list(range(1, STEPS + 1))
    assert found[STEPS] < found[1] - 1.0
    return found


def test_killed_and_stopped_run_goes_on_close_to_an_unbroken_one(recipe, straight):
    """SIGKILL after a save, SIGTERM later saves the step, then to the end."""
    run = start(recipe, "out", more="--step_seconds 0.3").until("^step 13 ", TIMEOUT)
    run.kill()
    parts = [run.text()]

    run = start(recipe, "out", str(newest(recipe, "out")), "--step_seconds 0.3").until("^step 15 ", TIMEOUT)
    assert "resumed from step 10" in run.text()
    run.process.send_signal(signal.SIGTERM)
    parts.append(run.wait(128 + signal.SIGTERM, TIMEOUT))
    saved = int(re.findall(r"asked to stop: saved step (\d+)", parts[-1])[0])
    assert newest(recipe, "out").name == f"checkpoint-{saved}"

    parts.append(start(recipe, "out", str(newest(recipe, "out"))).wait(0, TIMEOUT))
    assert f"resumed from step {saved}" in parts[-1]
    assert losses(*parts) == pytest.approx(straight, abs=CLOSE)


def test_checkpoint_without_optimizer_is_refused_not_resumed_silently(recipe, straight):
    """The script says what is missing and leaves with 1."""
    torn = recipe.folder / "no-optimizer/checkpoint-30"
    torn.parent.mkdir()
    (recipe.folder / "straight/checkpoint-30").rename(torn)
    (torn / "optimizer.pt").unlink()
    assert "lacks optimizer.pt" in start(recipe, "no-optimizer", str(torn)).wait(1, TIMEOUT)


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, straight):
    """SIGKILL of the machine, notice with SIGTERM, done: the losses are close to an unbroken run's."""
    command = f'exec sh venv.sh python train.py --output_dir "$TPUCTL_CHECKPOINT_DIR" {FLAGS} '
    command += '--resume_from_checkpoint "$TPUCTL_RESUME" --step_seconds "$HF_CLM_STEP_SECONDS"'
    settings = {"command": command, "target_steps": STEPS, "env.HF_CLM_STEP_SECONDS": 0.6}
    run = run_recipe(lab, "hf-clm-xla", saved=10, notice_at=17, settings=settings, timeout=TIMEOUT)
    assert losses(*run.logs) == pytest.approx(straight, abs=CLOSE)
    # The agent committed what SIGTERM made the script save: no step was made twice.
    assert run.heartbeats[1]["committed_step"] == max(losses(run.logs[1]))
    assert f"checkpoints/{STEPS:08d}/g3/w0/model.safetensors" in run.objects
