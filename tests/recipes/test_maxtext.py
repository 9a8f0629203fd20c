"""
examples/maxtext: MaxText's own pre-training from its package, not one line of it changed, loses no save.

Opt-in: TPUCTL_RECIPES=xla. The environment has 2.8 GB, and needs Python 3.12.
"""

import shutil
from pathlib import Path

import pytest

from tests.stock.survive import survive, use_example

pytestmark = pytest.mark.recipes
STEPS = 1500


def python() -> Path:
    """Return a Python 3.12 of this computer."""
    found = [*Path.home().glob(".pyenv/versions/3.12*/bin/python3.12"), shutil.which("python3.12")]
    if not any(found):
        pytest.skip("there is no Python 3.12 here")
    return Path(next(one for one in found if one))


@pytest.mark.e2e
def test_whole_life_on_the_local_cloud(lab):
    """Killed and given notice, it goes on from Orbax's newest step in the bucket, to the last one."""
    use_example(lab, "maxtext")
    file = lab.work / "tpuctl.yaml"
    # A machine of Google's downloads Python 3.12; one of the local cloud takes what this computer has.
    there = f'env PATH="{python().parent}:$PATH" tpuctl-venv'
    file.write_text(file.read_text().replace("tpuctl-venv -p", f"{there} -p"))
    run = survive(lab, settings={"env.MAXTEXT_STEPS": STEPS})
    assert f"checkpoints/{STEPS - 1}/commit_success.txt" in run.objects
    # A quick machine may reach the last step within its notice; the third one then has nothing left to train.
    assert f"completed step: {STEPS - 1}," in "".join(run.logs[1:])
