"""
examples/trl-sft: TRL's own program, not one line of it changed, loses no save.

Opt-in: TPUCTL_RECIPES=xla, until it has passed in this form.
"""

import pytest

from tests.stock.survive import survive, use_example

pytestmark = pytest.mark.recipes
STEPS = 600


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab):
    """Killed and given notice, the Trainer goes on where the bucket has it, and ends with its model there."""
    use_example(lab, "trl-sft")
    run = survive(lab, settings={"env.SFT_STEPS": STEPS})
    assert run.heartbeats[2]["committed_step"] == STEPS
    assert f"checkpoints/{STEPS:08d}/g3/w0/model.safetensors" in run.objects
    assert run.heartbeats[0]["resumed_from"] is None
    assert 0 < run.heartbeats[1]["resumed_from"] <= run.heartbeats[2]["resumed_from"] < STEPS
