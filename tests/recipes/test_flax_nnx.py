"""examples/flax-nnx: model, optimizer, dropout and grain's place in the data come back as one."""

import re

import pytest

from tests.recipes.kit import losses
from tests.stock.survive import survive, use_example

pytestmark = pytest.mark.recipes
STEPS = 250


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab):
    """
    Killed and given notice, it goes on from the step in the bucket; the notice costs no step.

    What was trained twice had the same loss twice: the windows of a step are the same after a restore.
    """
    use_example(lab, "flax-nnx")
    command = (
        f"exec sh venv.sh python train.py --steps {STEPS} --save-every 20 --log-every 1 --layers 1 --width 32"
    )
    run = survive(lab, settings={"target_steps": STEPS, "command": command})
    steps = losses("\n".join(run.logs))
    assert max(steps) == STEPS
    assert f"checkpoints/{STEPS}/commit_success.txt" in run.objects
    assert f"resumed from step {run.heartbeats[1]['resumed_from']}" in run.logs[1]
    assert run.heartbeats[1]["committed_step"] == max(losses(run.logs[1])), "the notice must cost no step"
    assert re.search(r"checkpoints/\d+/data/process_0-of-1.json", "\n".join(run.objects))
