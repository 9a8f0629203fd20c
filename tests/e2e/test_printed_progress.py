"""A training script with no word of tpuctl beyond the folder it saves to: its step, loss and rate are read."""

import json

import pytest

pytestmark = pytest.mark.e2e
NANOGPT = """
import os, pathlib, time

out = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
done = max((int(mark.parent.name) for mark in out.glob("*/COMPLETE")), default=0)
print("number of parameters: 0.80M")
for it in range(done, 101):
    time.sleep(0.1)
    loss = 4.0 / (1 + it / 20)
    if it % 20 == 0:
        print(f"step {it}: train loss {loss:.4f}, val loss 9.0000")
        folder = out / str(it)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ckpt.pt").write_text(str(it))
        (folder / "COMPLETE").touch()
    if it % 2 == 0:
        print(f"iter {it}: loss {loss:.4f}, time 100.00ms, mfu 0.10%")
    while it == 90 and os.environ["TPUCTL_INCARNATION"] == "1":
        time.sleep(0.1)
"""


def test_a_script_that_prints_as_nanogpt_does_shows_step_loss_and_rate(lab):
    """In `status --json`, in its text, in the log of a killed machine, and as a curve of the report."""
    (lab.work / "train.py").write_text(NANOGPT)
    lab.write(command="python3 train.py", target_steps=100, checkpoint={"format": "marker", "dir": "local"})
    lab.tpuctl("up")
    lab.wait_for("the last step before the kill", lambda: lab.at(90, committed=80))

    (worker,) = lab.status()["workers"]
    assert (worker["step"], worker["loss"], worker["progress_from"]) == (90, 0.7273, "lines")
    assert 1 < worker["steps_per_second"] < 11
    assert "step 90 of 100 (90%), loss 0.7273" in lab.tpuctl("status").out
    assert "iter 90:" in lab.logs(1), "Python held back what it printed"

    lab.tpuctl("local", "preempt", "--no-notice", f"{lab.name}-tpu-g1")
    done = lab.tpuctl("watch", "--json")
    summary = json.loads(done.out.splitlines()[-1])["summary"]
    assert (summary["steps"], summary["steps_redone"], summary["preemptions"]) == (100, 10, 1)
    assert summary["goodput"] > 0
    (way,) = summary["recoveries"]
    assert set(way["parts_s"]) >= {"setup", "compile"}

    report = json.loads(lab.tpuctl("report", "--json").out)
    page = (lab.work / report["file"]).read_text()
    assert page.count("<polyline") == 4
    assert "The job has reported no loss" not in page
    lab.tpuctl("down", "--yes", "--delete-data")
