"""Rehearsals distinguish a job that survives from one that does not."""

import json
import os
import signal
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e
UNHURRIED = """
# The first machine saves for minutes, whenever the blow comes. The next one need not wait.
import os, runpy, time
nap, naps = time.sleep, []
def slow(seconds):
    naps.append(seconds)
    nap(0.0 if os.environ["TPUCTL_INCARNATION"] != "1" else 0.1 if len(naps) < 20 else 1.5)
time.sleep = slow
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

QUIET = """
import os, pathlib, time

root = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
first = int(os.environ["TPUCTL_RESUME_STEP"] or 0) + 1
state = (root / f"step-{first - 1}" / "state").read_text() if first > 1 else ""
for step in range(first, 9):
    time.sleep(1)
    state += f"{step} "
    folder = root / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state").write_text(state)
    (folder / "COMPLETE").touch()
"""


def verdict(done):
    """Return the verdict, which is all that goes to stdout."""
    return json.loads(done.out)


def test_a_job_that_resumes_survives_a_kill_in_the_middle_of_a_save(lab):
    """The numpy example restores what is complete, whatever was being written."""
    lab.use_example(steps=60, save_every=2)
    (lab.work / "slowed.py").write_text(UNHURRIED)
    found = verdict(lab.tpuctl("rehearse", "--fault", "save", "--no-compare", "--json"))
    assert found["survives"]
    (recovery,) = found["recoveries"]
    assert recovery["resumed"]
    assert recovery["steps_redone"] <= 20


def test_a_job_that_ignores_its_checkpoints_does_not_survive(lab):
    """It reaches its end, but it began again from nothing: exit 1, and what to mend."""
    (lab.work / "train.py").write_text(FORGETFUL)
    lab.write(target_steps=60)
    done = lab.tpuctl("rehearse", "--fault", "no-notice", "--no-compare", "--json", expect=1)
    found = verdict(done)
    assert not found["survives"]
    assert found["done"]
    assert any("ignores its checkpoint" in text for text in found["hints"])


def test_a_job_that_reports_no_step_is_struck_by_its_checkpoints_and_judged_by_their_bytes(lab):
    """No loss, no step: what both runs saved last is compared, and nothing is claimed of steps."""
    (lab.work / "train.py").write_text(QUIET)
    lab.write()
    found = verdict(lab.tpuctl("rehearse", "--fault", "no-notice", "--at", "checkpoint:2", "--json"))
    assert found["verdict"] == "pass"
    assert found["same_checkpoint"] is True
    assert (found["same_loss"], found["recoveries"][0]["steps_redone"]) == (None, None)


def test_a_job_that_fails_by_itself_runs_once_and_its_cloud_is_retained(lab):
    """Its last lines and its exit status, once; the log is there until the printed command ends it."""
    (lab.work / "train.py").write_text("print('reads')\nopen('data/none.bin')\n")
    lab.write()
    found = verdict(lab.tpuctl("rehearse", "--json", expect=1))
    assert found["verdict"] == "fail"
    assert (found["failure"]["run"], found["failure"]["exit_code"]) == ("undisturbed", 1)
    assert "FileNotFoundError" in found["failure"]["log"][-1]
    lab.environment["TPUCTL_LOCAL_DIR"] = found["folder"]
    try:
        lines = lab.tpuctl("logs").out.splitlines()
        assert sum(line.startswith("FileNotFoundError") for line in lines) == 1  # reasons quote it
    finally:
        lab.tpuctl("local", "reset")
    Path(found["folder"]).parent.rmdir()


def test_a_job_whose_saves_no_format_reads_ends_the_rehearsal_at_once(lab):
    """Files straight into the folder: one run, the file's name, and no wait for a step that never comes."""
    lines = "import os, time\ntime.sleep(3)\nopen(os.environ['TPUCTL_CHECKPOINT_DIR'] + '/latest.npz', 'w')\n"
    (lab.work / "train.py").write_text(lines)
    lab.write(checkpoint={"format": "marker"})
    found = verdict(lab.tpuctl("rehearse", "--json", expect=1))
    assert (found["failure"]["run"], found["failure"]["outcome"]) == ("undisturbed", "uncommitted")
    assert "latest.npz" in found["failure"]["message"]
    assert found["causes"] == ["uncommitted"]
    lab.environment["TPUCTL_LOCAL_DIR"] = found["folder"]
    lab.tpuctl("local", "reset")
    Path(found["folder"]).parent.rmdir()


def test_a_rehearsal_whose_local_cloud_is_gone_gives_up_and_says_so(lab):
    """The cloud's process dies: no endless watch, one cause, nothing left."""
    (lab.work / "train.py").write_text("import time\ntime.sleep(600)\n")
    lab.write()
    lab.environment["TMPDIR"] = str(lab.folder)
    running = lab.start("rehearse", "--no-compare", "--fault", "no-notice")

    def address():
        found = list(lab.folder.glob("tpuctl-rehearsal-*/cloud/daemon.json"))
        return json.loads(found[0].read_text()) if found and "$ tpuctl watch" in lab.said(running) else None

    os.kill(lab.wait_for("a rehearsal that watches", address)["pid"], signal.SIGKILL)
    done = lab.end(running, expect=None)
    assert done.code not in (0, 130)
    assert "the local cloud of this rehearsal is gone" in done.err
    assert list(lab.folder.glob("tpuctl-rehearsal-*")) == []
