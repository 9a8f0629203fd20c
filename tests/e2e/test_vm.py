"""A job on the VM, as TPU-node programs of 2020 run: it learns the TPU's address, and every new one."""

import re

import pytest

pytestmark = pytest.mark.e2e
LOOP = """\
import json, os, pathlib, time
print("tpu", os.environ["TPU_NAME"], os.environ["TPU_IP_ADDRESS"], os.environ["XRT_TPU_CONFIG"], flush=True)
folder = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
progress = pathlib.Path(os.environ["TPUCTL_PROGRESS_FILE"])
steps = [int(p.parent.name.split("-")[1]) for p in folder.glob("step-*/COMPLETE")]
for step in range(max(steps, default=0) + 1, 101):
    fast = os.path.exists(os.environ["E2E_FAST"])
    time.sleep(0.0 if fast else 0.2 if step < 40 else 1.0)
    while step == 90 and not os.path.exists(os.environ["E2E_FAST"]):
        time.sleep(0.1)
    if step % 5 == 0:
        (folder / f"step-{step}").mkdir(parents=True, exist_ok=True)
        (folder / f"step-{step}" / "COMPLETE").write_text(str(step))
    progress.with_suffix(".new").write_text(json.dumps({"step": step}))
    progress.with_suffix(".new").replace(progress)
"""


def address(log: str) -> str:
    """Return the TPU's address that the job got, everywhere the same."""
    name, ip, config = re.findall(r"^tpu (\S+) (\S+) (\S+)$", log, re.MULTILINE)[-1]
    assert config == f"tpu_worker;0;{ip}:8470"
    assert name.startswith("e2e-tpu-g")
    return ip


def test_a_job_on_the_vm_survives_the_loss_of_vm_and_tpu(lab):
    """A preempted VM is started again and goes on; a new TPU restarts the job with the new address."""
    (lab.work / "loop.py").write_text(LOOP)
    env = {"E2E_FAST": str(lab.folder / "fast")}
    lab.write(command="python3 loop.py", run_on="vm", vm="{spot: true}", env=env, target_steps=100)
    lab.tpuctl("up")
    lab.wait_for("step 6", lambda: lab.at(6, committed=5))
    (job,) = lab.jobs(b"loop.py")
    lab.wait_for("its log", lambda: "\ntpu " in lab.logs(1))
    first = address(lab.logs(1))

    watch = lab.start("watch")
    lab.tpuctl("local", "preempt", "e2e-vm", "--no-notice")
    assert job not in lab.jobs(b"loop.py")
    (heartbeat,) = lab.wait_for("the VM's job again", lambda: lab.at(6, attempt=2))
    assert heartbeat["resumed_from"] >= 5
    reported = "Starting VM e2e-vm (it was preempted)"
    lab.wait_for("a word on it", lambda: reported in lab.said(watch))

    lab.tpuctl("local", "preempt", "e2e-tpu-g1", "--no-notice")
    (heartbeat,) = lab.wait_for("the job with another TPU", lambda: lab.at(1, incarnation=2))
    assert heartbeat["resumed_from"] >= 5
    lab.wait_for("its log", lambda: "\ntpu " in lab.logs(2))
    assert address(lab.logs(2)) != first
    assert len(lab.jobs(b"loop.py")) == 1
    lab.hurry()
    lab.end(watch)
