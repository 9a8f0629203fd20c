"""
The life of a deployment: up, preemptions, interrupted commands, done, down. Nothing is lost or redone.
"""

import os
import signal
import subprocess
import sys

import pytest

from tests.e2e.stage import losses

pytestmark = pytest.mark.e2e
STEPS = 100


def unbroken(stage) -> dict[int, str]:
    """Run the same script with the same settings without any interruption; return its losses."""
    env = {
        **os.environ, "NUMPY_LM_STEPS": str(STEPS), "NUMPY_LM_STEP_SECONDS": "0", "NUMPY_LM_LOG_EVERY": "1",
        "NUMPY_LM_OUT": "", "TPUCTL_CHECKPOINT_DIR": str(stage.folder / "unbroken"),
    }  # fmt: skip
    del env["NUMPY_LM_OUT"]
    done = subprocess.run([sys.executable, "train.py"], cwd=stage.work, env=env, capture_output=True, check=True)
    return losses(done.stdout.decode())


def test_a_job_survives_notice_kill_and_interrupted_watches_to_the_same_loss(stage):
    """
    Two preemptions, a Ctrl-C and a SIGKILL of watch: the losses equal those of an unbroken run.
    """
    stage.use_example(steps=STEPS, step_seconds=0.05, save_every=10)
    assert "e2e is up" in stage.tpuctl("up").err
    again = stage.tpuctl("up", "--json")
    assert '"changes": 0' in again.out

    watch = stage.start("watch")
    stage.wait_for("step 15", lambda: stage.at(15))
    stage.tpuctl("local", "preempt", "e2e-tpu-g1")
    stage.wait_for("incarnation 2", lambda: stage.at(1, incarnation=2))
    last = stage.beats(1)[0]
    assert last["notice"]
    assert last["committed_step"] == last["step"] == max(losses(stage.logs(1)))
    assert f"resume from step {last['step']}" in stage.logs(2)
    assert min(losses(stage.logs(2))) == last["step"] + 1

    watch.send_signal(signal.SIGINT)
    assert "everything keeps running. Go on with: tpuctl watch" in stage.end(watch, 130).err
    assert stage.at(1, incarnation=2)

    watch = stage.start("watch")
    stage.wait_for("a checkpoint", lambda: [b for b in stage.at(1, incarnation=2) if b["step"] > last["step"] + 10])
    stage.tpuctl("local", "preempt", "e2e-tpu-g2", "--no-notice")
    stage.wait_for("recovery", lambda: "e2e-tpu-g2: deletion asked for" in stage.said(watch))
    watch.kill()
    watch.wait()
    done = stage.end(stage.start("watch"))
    assert "done:" in done.err
    assert [b["incarnation"] for b in stage.beats()] == [3]

    assert [m for m in stage.machines() if m["running"]] == []
    shown = stage.tpuctl("logs").out
    for incarnation in (1, 2, 3):
        assert f"--- incarnation {incarnation}, worker 0, attempt 1: " in shown
    assert losses(shown) == unbroken(stage)

    stage.tpuctl("down", "--yes", "--delete-data")
    assert stage.bucket() == ""
    assert "nothing is left" in stage.tpuctl("down", "--yes").err
