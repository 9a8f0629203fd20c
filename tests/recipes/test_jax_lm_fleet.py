"""Examples/jax-lm over two slices of a fleet: one is lost, and all losses are those of an unbroken run."""

import json
import signal
import time

import pytest

from tests.e2e.process_lab import ProcessLab
from tests.recipes.jax_lm import settings
from tests.recipes.kit import copy, held, hold, hold_at, losses
from tests.recipes.run import RUN_TIMEOUT

pytestmark = [pytest.mark.recipes, pytest.mark.e2e, pytest.mark.xdist_group("jax-lm")]
STEPS = 32
FLEET = """\
name: e2e
tpu: {type: v2-8, zones: [us-central1-b]}
fleet: {nodes: 3}
watch: {poll: 2s, listen: 1s}
"""


def submit(lab: ProcessLab, name: str, **env: str) -> str:
    """Submit the training as a job over two slices; return its task's folder in the bucket."""
    job = {
        "source": "jax-lm", "setup": "sh venv.sh", "command": held("exec sh venv.sh python train.py"),
        "env": {**settings(STEPS, 1, lab.folder / "compiled"), **env}, "target_steps": STEPS,
        "checkpoint": {"format": "orbax", "dir": "bucket"},
    }  # fmt: skip
    (lab.work / f"{name}.yaml").write_text(json.dumps({"name": name, "slices": 2, "job": job}))
    lab.tpuctl("fleet", "submit", f"{name}.yaml")
    return f"jobs/{name}/tasks/0/"


def heartbeats(lab: ProcessLab, folder: str, incarnation: int) -> list[dict]:
    """Return the reports of one start."""
    return [json.loads(lab.read(name)) for name in lab.objects(f"{folder}.tpuctl/heartbeat/{incarnation}/")]


def printed(lab: ProcessLab, folder: str, worker: int) -> dict[int, str]:
    """Return the loss of each step that a worker has printed, in all starts."""
    names = [name for name in lab.objects(f"{folder}logs/") if f"/w{worker}/" in name]
    return losses(b"".join(lab.read(name) for name in names).decode(errors="replace"))


@pytest.mark.usefixtures("slurm_packages")
def test_losses_are_those_of_an_unbroken_run_when_a_slice_is_lost(lab):
    """Both slices start together from the newest save; how long that takes is printed."""
    copy("jax-lm", lab.work / "jax-lm")
    hold(lab.work / "jax-lm")
    (lab.work / "tpuctl.yaml").write_text(FLEET)
    gate = lab.folder / "held-at"
    hold_at(gate, 11)
    lab.tpuctl("fleet", "up", "--yes", seconds=RUN_TIMEOUT)
    watch = lab.start("fleet", "watch")
    whole = submit(lab, "whole")
    lab.wait_for("an unbroken run", lambda: lab.objects("jobs/whole/ends/0.done"), RUN_TIMEOUT)
    broken = submit(lab, "broken", HELD_AT=str(gate))

    def at_step_11() -> bool:
        found = heartbeats(lab, broken, 1)
        # Saves are written beside the training: at step 11 that of step 8 may not have ended.
        return [(heartbeat.get("step"), heartbeat.get("committed_step")) for heartbeat in found] == [
            (11, 8)
        ] * 2

    lab.wait_for("step 11 on both, and step 8 in the bucket", at_step_11, RUN_TIMEOUT)
    shares = {n: lab.read(f"nodes/e2e-00{n}/.tpuctl/share.json") for n in (1, 2, 3)}
    mine = {n: json.loads(found) for n, found in shares.items() if found}
    (second,) = [n for n, one in mine.items() if (one["job"], one["slice"]) == ("broken", 1)]
    lab.tpuctl("local", "preempt", f"e2e-00{second}-tpu-g1", "--no-notice")
    began = time.monotonic()

    def again() -> bool:
        found = heartbeats(lab, broken, 2)
        return len(found) == 2 and all(heartbeat.get("phase") == "run" for heartbeat in found)

    lab.wait_for("both run again", again, RUN_TIMEOUT)
    print(f"F9: both slices run again {time.monotonic() - began:.1f} s after the loss of one")
    gate.unlink()
    lab.wait_for("the end", lambda: lab.objects("jobs/broken/ends/0.done"), RUN_TIMEOUT)
    assert {heartbeat["resumed_from"] for heartbeat in heartbeats(lab, broken, 2)} == {8}
    straight = printed(lab, whole, 0)
    assert list(straight) == list(range(1, STEPS + 1))
    assert printed(lab, whole, 1) == straight
    assert [printed(lab, broken, worker) for worker in (0, 1)] == [straight] * 2
    watch.send_signal(signal.SIGINT)
    lab.end(watch, expect=None)
    lab.tpuctl("fleet", "down", "--yes", "--delete-data", seconds=RUN_TIMEOUT)
    assert [machine for machine in lab.machines() if machine["running"]] == []
