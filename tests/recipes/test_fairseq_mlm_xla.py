"""
examples/fairseq-mlm-xla: fairseq --tpu saves at the ends of epochs, and goes on from there when killed.

Opt-in: TPUCTL_RECIPES=xla. The environment has 6.5 GB.
"""

import re

import pytest

from tests.recipes.kit import Recipe, RecipeCommand, prepared
from tests.recipes.run import run_recipe

pytestmark = [pytest.mark.recipes, pytest.mark.xdist_group("xla")]
UPDATES = 24
TIMEOUT = 600  # seconds: each start compiles, and the machine may be busy
CLOSE = 0.02  # of losses around 8


def start(recipe: Recipe, out: str, step_seconds: float = 0, more: str = "") -> RecipeCommand:
    """Start the training with a line of log for each update."""
    return recipe.start(
        f"exec sh train.sh --log-interval 1 {more}",
        TPUCTL_CHECKPOINT_DIR=out,
        FAIRSEQ_UPDATES=str(UPDATES),
        FAIRSEQ_STEP_SECONDS=str(step_seconds),
    )


def losses(*texts: str) -> dict[int, float]:
    """Return the loss of each update; one that was made twice must have had nearly the same loss twice."""
    found: dict[int, float] = {}
    for loss, update in re.findall(r"train_inner .* loss=([\d.]+),.* num_updates=(\d+),", "\n".join(texts)):
        assert float(loss) == pytest.approx(found.setdefault(int(update), float(loss)), abs=CLOSE)
    return found


@pytest.fixture(scope="module")
def recipe(tmp_path_factory):
    """Return a copy of the recipe, with its data made."""
    one = prepared("fairseq-mlm-xla", tmp_path_factory.mktemp("fairseq-xla"))
    one.run("sh prepare.sh", TIMEOUT)
    yield one
    one.close()


@pytest.fixture(scope="module")
def straight(recipe) -> dict[int, float]:
    """Return the losses of a run that nothing interrupts."""
    found = losses(start(recipe, "straight").wait(0, TIMEOUT))
    assert list(found) == list(range(1, UPDATES + 1))
    assert found[UPDATES] < found[1] - 1.0
    return found


def test_killed_run_goes_on_from_the_end_of_its_epoch(recipe, straight):
    """SIGKILL within an epoch: no update is left out or made too often, and the losses are close."""
    run = start(recipe, "out", 0.3).until("num_updates=15,", TIMEOUT)
    run.kill()
    text = start(recipe, "out").wait(0, TIMEOUT)
    saved = int(re.findall(r"checkpoint_last.pt \(epoch \d+ @ (\d+) updates\)", text)[0])
    assert 0 < saved < 15
    assert list(losses(text)) == list(range(saved + 1, UPDATES + 1))
    assert losses(run.text(), text) == pytest.approx(straight, abs=CLOSE)
    assert f"@ {UPDATES} updates" in start(recipe, "out").wait(0, TIMEOUT)


def test_saves_within_epochs_are_refused(recipe):
    """The position in the data would be stored wrongly, and nothing would say so."""
    text = start(recipe, "within", more="--save-interval-updates 10").wait(1, TIMEOUT)
    assert "save at the ends of epochs only" in text


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, straight):
    """SIGKILL of the machine, notice with SIGTERM, done: every update is made, with a close loss."""
    settings = {
        "command": "exec sh train.sh --log-interval 1",
        "target_steps": UPDATES,
        "env.FAIRSEQ_UPDATES": UPDATES,
        "env.FAIRSEQ_STEP_SECONDS": 0.7,
    }
    run = run_recipe(lab, "fairseq-mlm-xla", saved=4, notice_at=13, settings=settings, timeout=TIMEOUT)
    assert losses(*run.logs) == pytest.approx(straight, abs=CLOSE)
    assert any(name.startswith(f"checkpoints/{UPDATES:08d}/g3/w0/") for name in run.objects)
