"""The lifetime of a deployment: up, preemptions, interrupted commands, done, down. Nothing is lost or redone."""

import os
import signal
import subprocess
import sys

import pytest

from orchestrator.emulator.machines.machine_python import base_interpreter, version_of
from tests.e2e.process_lab import losses

pytestmark = pytest.mark.e2e
STEPS = 150


def unbroken(lab) -> dict[int, str]:
    """Run the same script with the same settings without any interruption; return its losses."""
    env = {
        **os.environ, "NUMPY_LM_STEPS": str(STEPS), "NUMPY_LM_STEP_SECONDS": "0", "NUMPY_LM_LOG_EVERY": "1",
        "TPUCTL_CHECKPOINT_DIR": str(lab.folder / "unbroken"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "train.py"], cwd=lab.work, env=env, capture_output=True, check=True
    )
    return losses(done.stdout.decode())


def test_a_job_survives_notice_kill_and_interrupted_watches_to_the_same_loss(lab):
    """Two preemptions, a Ctrl-C and a SIGKILL of watch: the losses equal those of an unbroken run."""
    lab.use_example(steps=STEPS)
    # Google's notice is 30 s; the local cloud's own 2 s are too few for a last save on a busy computer. The
    # example reads the sources of its Python, so the unbroken run must have the same.
    python = version_of(base_interpreter())
    lab.tpuctl("local", "start", "--notice", "30", "--python", python)
    assert "e2e is up" in lab.tpuctl("up").err
    again = lab.tpuctl("up", "--json")
    assert '"changes_count": 0' in again.out

    watch = lab.start("watch")
    lab.wait_for("step 7", lambda: lab.at(7))
    lab.tpuctl("local", "preempt", "e2e-tpu-g1")
    lab.wait_for("incarnation 2", lambda: lab.at(1, incarnation=2))
    last = lab.heartbeats(1)[0]
    assert last["notice"]
    assert last["committed_step"] == last["step"] >= max(losses(lab.logs(1)))
    lab.wait_for("its log", lambda: losses(lab.logs(2)))
    assert f"resume from step {last['step']}" in lab.logs(2)
    assert min(losses(lab.logs(2))) == last["step"] + 1

    watch.send_signal(signal.SIGINT)
    assert "go on with `tpuctl watch`" in lab.end(watch, 130).err
    assert lab.at(1, incarnation=2)

    watch = lab.start("watch")
    # A killed machine's last lines are lost, unless they have reached the bucket.
    lab.wait_for("a checkpoint", lambda: lab.at(last["step"] + 6, incarnation=2))
    stands = lab.hold()
    lab.wait_for("all lines", lambda: max(losses(lab.logs(2))) == stands)
    lab.tpuctl("local", "preempt", "e2e-tpu-g2", "--no-notice")
    lab.let_go()
    lab.wait_for("recovery", lambda: "Deleting TPU e2e-tpu-g2" in lab.said(watch))
    watch.kill()
    watch.wait(30)
    follow = lab.start("logs", "-f")
    lab.hurry()
    done = lab.end(lab.start("watch"))
    assert "done:" in done.err
    assert [b["incarnation"] for b in lab.heartbeats()] == [3]

    assert [m for m in lab.machines() if m["running"]] == []
    shown = lab.tpuctl("logs").out
    assert lab.end(follow).out == shown
    for incarnation in (1, 2, 3):
        assert f"--- TPU #{incarnation}, worker 0, attempt 1: " in shown
    observed, whole = losses(shown), unbroken(lab)
    # Not to the last digit: two BLAS, or two numbers of threads, add in another order. A step that is trained
    # twice or left out, or a lost moment of the optimizer, shows in the third digit.
    assert {step: float(loss) for step, loss in observed.items()} == pytest.approx(
        {step: float(loss) for step, loss in whole.items()}, abs=2e-5
    )

    lab.tpuctl("down", "--yes", "--delete-data")
    assert lab.bucket() == ""
    assert "nothing of " in lab.tpuctl("down", "--yes").err
