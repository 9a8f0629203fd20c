"""examples/lightning: Trainer.fit with ModelCheckpoint loses no save, and goes on with the windows that are due."""

import re

import pytest

from tests.recipes.kit import prepared
from tests.stock.survive import survive, use_example

pytestmark = pytest.mark.recipes
STEPS = 400


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab, tmp_path_factory):
    """Killed and given notice, the last line has the loss of a run that nothing interrupts."""
    recipe = prepared("lightning", tmp_path_factory.mktemp("lightning"))
    straight = recipe.run(f"exec sh venv.sh python train.py --steps {STEPS}")
    last = re.compile(rf"^step {STEPS} loss \S+$", re.MULTILINE)
    use_example(lab, "lightning")
    run = survive(lab, settings={"env.LIGHTNING_STEPS": STEPS})
    # A quick machine may reach the last step within its notice; the third one then has nothing left to train.
    assert set(last.findall("".join(run.logs[1:]))) == set(last.findall(straight)) != set()
    assert run.heartbeats[2]["committed_step"] == STEPS
    assert any(name.endswith("last.ckpt") for name in run.objects)
