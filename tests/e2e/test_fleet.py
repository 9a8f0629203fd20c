"""A fleet on machines that are real processes, with the Slurm of the distribution's packages."""

import json
import signal

import pytest

pytestmark = pytest.mark.e2e
FLEET = """\
name: e2e
tpu: {type: v2-8, zones: [us-central1-b, us-central1-c]}
fleet: {nodes: 2}
watch: {poll: 2s, listen: 1s}
"""
JOB = """\
name: one
matrix: {lr: [0.5]}
job: {source: src, command: python3 train.py, checkpoint: {format: marker}, target_steps: 8}
"""
TRAIN = """\
import os, pathlib, time
place, go = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"]), pathlib.Path("GO")
for step in range(int(os.environ["TPUCTL_RESUME_STEP"] or 0) + 1, 9):
    while step == 5 and not go.exists():
        time.sleep(0.1)
    print("lr", os.environ["lr"], "made step", step, flush=True)
    folder = place / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model").write_text(str(step))
    (folder / "COMPLETE").write_text("")
"""


@pytest.mark.usefixtures("slurm_packages")
def test_a_task_whose_machine_is_lost_goes_on_from_its_checkpoint_on_another_node(lab):
    """Up, submit, a machine lost without notice, the result, and down: nothing is left."""
    go = lab.work / "GO"
    (lab.work / "src").mkdir()
    (lab.work / "src" / "train.py").write_text(TRAIN.replace("GO", str(go)))
    (lab.work / "tpuctl.yaml").write_text(FLEET)
    (lab.work / "one.yaml").write_text(JOB)
    lab.tpuctl("fleet", "up", "--yes")
    watch = lab.start("fleet", "watch")
    lab.tpuctl("fleet", "submit", "one.yaml")
    saved = "jobs/one/tasks/0/checkpoints/"
    lab.wait_for("step 4 in the bucket", lambda: [n for n in lab.objects(saved) if "/4/" in n or "0004" in n])
    (task,) = json.loads(lab.tpuctl("fleet", "queue", "--json").out)["jobs"][0]["tasks"]
    assert (task["state"], task["parameters"]) == ("running", {"lr": "0.5"})
    lost = f"{task['node']}-tpu-g1"
    lab.tpuctl("local", "preempt", lost, "--no-notice")
    running = lambda: [one for one in lab.machines() if one["running"] and lost in json.dumps(one)]  # noqa: E731
    lab.wait_for("the machine's end", lambda: not running())
    go.touch()
    lab.wait_for("the task's end", lambda: lab.objects("jobs/one/ends/0.done"))
    log = lab.tpuctl("fleet", "logs", "one/0").out
    made = [int(line.split()[-1]) for line in log.splitlines() if "made step" in line]
    # The last lines of the lost machine may be lost with it; no step was made twice.
    assert (made[-4:], len(set(made))) == ([5, 6, 7, 8], len(made))
    lab.tpuctl("fleet", "fetch", "one")
    assert (lab.work / "one-checkpoints" / "0" / "model").read_text() == "8"
    watch.send_signal(signal.SIGINT)
    lab.end(watch, expect=None)
    lab.tpuctl("fleet", "down", "--yes")
    # The second one meets a local cloud that has stopped with the last machine.
    lab.tpuctl("fleet", "down", "--yes", "--delete-data")
    assert [machine for machine in lab.machines() if machine["running"]] == []
