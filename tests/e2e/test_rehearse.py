"""
Rehearsals: a job that survives is told from one that does not.
"""

import json

import pytest

pytestmark = pytest.mark.e2e
UNHURRIED = """
# The first machine saves for minutes, whenever the blow comes. The next one need not wait.
import os, runpy, time
nap, naps = time.sleep, []
def pace(seconds):
    naps.append(seconds)
    nap(0.0 if os.environ["TPUCTL_INCARNATION"] != "1" else 0.1 if len(naps) < 20 else 1.5)
time.sleep = pace
runpy.run_path("train.py", run_name="__main__")
"""
FORGETFUL = """
import json, os, pathlib, time

root = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
first = os.environ["TPUCTL_INCARNATION"] == "1"

def until_the_agent_knows(what, least):
    heartbeat = pathlib.Path(os.environ["TPUCTL_ROOT"], "state", "status.json")
    while (json.loads(heartbeat.read_text())[what] or 0) < least:
        time.sleep(0.1)

for step in range(1, 61):
    time.sleep(0.05)
    if step == 2:
        until_the_agent_knows("step", 1)
    while first and step == 40:
        time.sleep(0.1)
    if first and step == 15:
        until_the_agent_knows("committed_step", 5)
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
    stage.use_example(steps=60, save_every=2)
    (stage.work / "paced.py").write_text(UNHURRIED)
    found = verdict(stage.tpuctl("rehearse", "--kill", "save", "--no-compare", "--json"))
    assert found["survives"]
    (comeback,) = found["comebacks"]
    assert comeback["resumed"]
    assert comeback["redone"] <= 20


def test_a_job_that_ignores_its_checkpoints_does_not_survive(stage):
    """
    It reaches its end, but it began again from nothing: exit 1, and what to mend.
    """
    (stage.work / "train.py").write_text(FORGETFUL)
    stage.write(target_steps=60)
    done = stage.tpuctl("rehearse", "--kill", "kill", "--no-compare", "--json", expect=1)
    found = verdict(done)
    assert not found["survives"]
    assert found["done"]
    assert any("ignores its checkpoint" in text for text in found["advice"])
