"""
examples/maxtext: MaxText's own pre-training from its package, not one line of it changed, loses no save.

Opt-in: TPUCTL_RECIPES=xla. The environment has 2.8 GB, and needs Python 3.12.
"""

import pytest

from tests.stock.survive import survive, use_example

pytestmark = pytest.mark.recipes
STEPS = 1500


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(stage):
    """Killed and given notice, it goes on from Orbax's newest step in the bucket, to the last one."""
    use_example(stage, "maxtext")
    life = survive(stage, settings={"env.MAXTEXT_STEPS": STEPS})
    assert f"checkpoints/{STEPS - 1}/commit_success.txt" in life.objects
    assert f"completed step: {STEPS - 1}," in life.logs[2]
