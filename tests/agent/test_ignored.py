"""A job that does not begin at the checkpoint that was restored for it: its agent says so, and why."""

from pathlib import Path
from typing import Any

import pytest

from orchestrator.agent.checkpoints.ignored import RestoredFiles, ignored_message
from tests.agent.agent_lab import AgentLab, AgentMachine

PLAIN_SCRIPT = """
import os, time, zipfile
from pathlib import Path
saved = Path(os.environ["TPUCTL_CHECKPOINT_DIR"]) / "ckpt_00050.npz"
def save():
    with zipfile.ZipFile(saved, "w") as file:
        file.writestr("weights.npy", "trained")
if os.environ["TPUCTL_RESUME"] and os.environ["DOES"] == "deletes":
    saved.unlink()
if os.environ["TPUCTL_RESUME"] and os.environ["DOES"] == "rewrites":
    save()
first = 51 if os.environ["TPUCTL_RESUME"] and os.environ["DOES"] == "resumes" else 20
print(f"step {first} loss 0.6", flush=True)
if not os.environ["TPUCTL_RESUME"]:
    print("step 50 loss 0.5", flush=True)
    save()
time.sleep(600)  # until the test kills the machine
"""
IGNORES = (
    "step 50 is restored, but the first step that the job reports is 20: it did not load that checkpoint, or "
    "counts its steps anew"
)
COSTS = ". So every preemption costs all steps"


def lost_and_replaced(lab: AgentLab, script: str, **changes: object) -> tuple[dict[str, Any], AgentMachine]:
    """Kill a machine that has committed step 50; return its heartbeat and the machine that resumes there."""
    settings = {"BUNDLE": lab.put_bundle({"train.py": script.encode()}), **changes}
    first = lab.machine(**settings).start()
    first.until_committed(50)
    heartbeat = first.heartbeat()
    first.kill_all()
    return heartbeat, lab.machine("m1", INCARNATION=2, **settings).start()


@pytest.mark.parametrize(
    ("does", "said"),
    [
        ("nothing", IGNORES + COSTS),
        ("rewrites", f"{IGNORES}, and has written over it{COSTS}"),
        ("deletes", f"{IGNORES}, and has deleted it{COSTS}"),
        ("resumes", ""),
    ],
)
def test_a_script_that_does_not_load_its_checkpoint_is_reported_with_what_it_did(
    lab: AgentLab, does: str, said: str
) -> None:
    """In the report and in the log, as soon as it has a first step; no framework has a part in it."""
    first, second = lost_and_replaced(lab, PLAIN_SCRIPT, CHECKPOINT_FORMAT="auto", _DOES=does)
    assert first["ignored_message"] == ""
    second.until(lambda: second.heartbeat().get("began_step") is not None, "a step")
    assert (second.heartbeat()["ignored_message"], second.heartbeat()["message"]) == (said, "")
    second.until(lambda: f"--- {said} ---" in lab.log(2) if said else "step 51" in lab.log(2), "the log")
    assert ("is restored, but" in lab.log(2)) == bool(said)
    second.kill_all()


def test_what_a_framework_refuses_is_not_blamed_on_the_script(tmp_path: Path) -> None:
    """Orbax deletes what it takes for torn, and begins anew."""
    (tmp_path / "50").mkdir()
    (tmp_path / "50" / "array").write_bytes(b"x")
    files = RestoredFiles()
    files.remember(tmp_path, ["50/array"], "orbax")
    assert ignored_message(20, 50, files) == IGNORES + COSTS
    (tmp_path / "50" / "array").unlink()
    said = ignored_message(20, 50, files)
    assert "though its bytes were as saved: the framework has refused it, or the job has deleted it" in said


REPORTS = """
import os, time
from pathlib import Path
first = 51 if os.environ["DOES"] == "resumes" else 20
for step in (first, first + 20):
    print(f"step {step} loss 0.6", flush=True)
    time.sleep(1)
if not os.environ["TPUCTL_RESUME"]:
    Path(os.environ["TPUCTL_CHECKPOINT_DIR"], "ckpt_00050.bin").write_bytes(b"trained")
time.sleep(600)  # until the test kills the machine
"""


@pytest.mark.parametrize(("does", "trained_from"), [("nothing", 0), ("resumes", 50)])
def test_a_machine_reports_from_which_step_its_job_trained(
    lab: AgentLab, does: str, trained_from: int
) -> None:
    """Not from the checkpoint that it has ignored: it reports each twentieth step, so twenty came before."""
    first, second = lost_and_replaced(lab, REPORTS, CHECKPOINT_FORMAT="files", _DOES=does)
    assert first["from_step"] == 0
    second.until(lambda: (second.heartbeat().get("step") or 0) in (40, 71), "the second report")
    assert (second.heartbeat()["resumed_from"], second.heartbeat()["from_step"]) == (50, trained_from)
    second.kill_all()
