"""
Rehearsals: a job that survives is told from one that does not.
"""

import json

import pytest

PLAIN = ("--set", "job.command=python3 train.py", "--set", "job.env.NUMPY_LM_STEP_SECONDS=0.15")
pytestmark = pytest.mark.e2e
FORGETFUL = """
import json, os, pathlib, time

root = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
for step in range(1, 201):
    time.sleep(0.1)
    if step % 5 == 0:
        folder = root / f"step-{step:06d}"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "state").write_text(str(step))
        (folder / "COMPLETE").touch()
    progress = pathlib.Path(os.environ["TPUCTL_PROGRESS_FILE"])
    progress.with_suffix(".new").write_text(json.dumps({"step": step, "loss": 1.0 / step}))
    progress.with_suffix(".new").rename(progress)
"""


def verdict(done):
    """Return the verdict, which is all that goes to stdout."""
    return json.loads(done.out)


def test_a_job_that_resumes_survives_a_kill_in_the_middle_of_a_save(stage):
    """
    The numpy example restores what is complete, whatever was being written.
    """
    stage.use_example(steps=60)
    found = verdict(stage.tpuctl("rehearse", "--kill", "save", "--no-compare", "--json", *PLAIN))
    assert found["survives"]
    (comeback,) = found["comebacks"]
    assert comeback["resumed"]
    assert comeback["redone"] <= 20


def test_a_job_that_ignores_its_checkpoints_does_not_survive(stage):
    """
    It reaches its end, but it began again from nothing: exit 1, and what to mend.
    """
    (stage.work / "train.py").write_text(FORGETFUL)
    stage.write(target_steps=200)
    done = stage.tpuctl("rehearse", "--kill", "kill", "--no-compare", "--json", expect=1)
    found = verdict(done)
    assert not found["survives"]
    assert found["done"]
    assert any("ignores its checkpoint" in text for text in found["advice"])
