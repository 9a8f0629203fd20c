"""The lifetime of a deployment: up, preemptions, interrupted commands, done, down. Nothing is lost or redone."""

import os
import signal
import subprocess
import sys

import pytest

from orchestrator.emulator.machines.machine_python import base_interpreter, version_of
from tests.e2e.stage import losses

pytestmark = pytest.mark.e2e
STEPS = 150


def unbroken(stage) -> dict[int, str]:
    """Run the same script with the same settings without any interruption; return its losses."""
    env = {
        **os.environ, "NUMPY_LM_STEPS": str(STEPS), "NUMPY_LM_STEP_SECONDS": "0", "NUMPY_LM_LOG_EVERY": "1",
        "TPUCTL_CHECKPOINT_DIR": str(stage.folder / "unbroken"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=stage.work, env=env, capture_output=True, check=True
    )
    return losses(done.stdout.decode())


def test_a_job_survives_notice_kill_and_interrupted_watches_to_the_same_loss(stage):
    """Two preemptions, a Ctrl-C and a SIGKILL of watch: the losses equal those of an unbroken run."""
    stage.use_example(steps=STEPS)
    # Google's notice is 30 s; the local cloud's own 2 s are too few for a last save on a busy computer. The
    # example reads the sources of its Python, so the unbroken run must have the same.
    python = version_of(base_interpreter())
    stage.tpuctl("local", "start", "--notice", "30", "--python", python)
    assert "e2e is up" in stage.tpuctl("up").err
    again = stage.tpuctl("up", "--json")
    assert '"changes_count": 0' in again.out

    watch = stage.start("watch")
    stage.wait_for("step 7", lambda: stage.at(7))
    stage.tpuctl("local", "preempt", "e2e-tpu-g1")
    stage.wait_for("incarnation 2", lambda: stage.at(1, incarnation=2))
    last = stage.beats(1)[0]
    assert last["notice"]
    assert last["committed_step"] == last["step"] >= max(losses(stage.logs(1)))
    stage.wait_for("its log", lambda: losses(stage.logs(2)))
    assert f"resume from step {last['step']}" in stage.logs(2)
    assert min(losses(stage.logs(2))) == last["step"] + 1

    watch.send_signal(signal.SIGINT)
    assert "go on with `tpuctl watch`" in stage.end(watch, 130).err
    assert stage.at(1, incarnation=2)

    watch = stage.start("watch")
    # A killed machine's last lines are lost, unless they have reached the bucket.
    stage.wait_for("a checkpoint", lambda: stage.at(last["step"] + 6, incarnation=2))
    stands = stage.hold()
    stage.wait_for("all lines", lambda: max(losses(stage.logs(2))) == stands)
    stage.tpuctl("local", "preempt", "e2e-tpu-g2", "--no-notice")
    stage.let_go()
    stage.wait_for("recovery", lambda: "Deleting TPU e2e-tpu-g2" in stage.said(watch))
    watch.kill()
    watch.wait(30)
    follow = stage.start("logs", "-f")
    stage.hurry()
    done = stage.end(stage.start("watch"))
    assert "done:" in done.err
    assert [b["incarnation"] for b in stage.beats()] == [3]

    assert [m for m in stage.machines() if m["running"]] == []
    shown = stage.tpuctl("logs").out
    assert stage.end(follow).out == shown
    for incarnation in (1, 2, 3):
        assert f"--- TPU #{incarnation}, worker 0, attempt 1: " in shown
    observed, whole = losses(shown), unbroken(stage)
    # Not to the last digit: two BLAS, or two numbers of threads, add in another order. A step that is trained
    # twice or left out, or a lost moment of the optimizer, shows in the third digit.
    assert {step: float(loss) for step, loss in observed.items()} == pytest.approx(
        {step: float(loss) for step, loss in whole.items()}, abs=2e-5
    )

    stage.tpuctl("down", "--yes", "--delete-data")
    assert stage.bucket() == ""
    assert "nothing of " in stage.tpuctl("down", "--yes").err
