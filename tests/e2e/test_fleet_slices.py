"""A job over several slices of a fleet on real Slurm."""

import json
import signal

import pytest

pytestmark = pytest.mark.e2e
FLEET = """\
name: e2e
tpu: {type: v2-8, zones: [us-central1-b]}
fleet: {nodes: 2}
watch: {poll: 2s, listen: 1s}
"""
JOB = """\
name: wide
slices: 2
job: {source: src, command: python3 train.py, checkpoint: {format: marker}, target_steps: 8}
"""
TRAIN = """\
import os, pathlib, socket, time
place, go = pathlib.Path(os.environ["TPUCTL_CHECKPOINT_DIR"]), pathlib.Path("GO")
me, count = int(os.environ["TPUCTL_WORKER_ID"]), int(os.environ["TPUCTL_WORKERS"])
names = ["MEGASCALE_SLICE_ID", "MEGASCALE_NUM_SLICES", "TPU_WORKER_ID", "TPU_WORKER_HOSTNAMES"]
print("is", me, "of", count, *(os.environ[name] for name in names), flush=True)
first = (os.environ["MEGASCALE_COORDINATOR_ADDRESS"], 8476)
resume = os.environ["TPUCTL_RESUME"]
state = int((pathlib.Path(resume) / f"state-{me}").read_text()) if resume else 1
if me:
    while True:
        try:
            others = [socket.create_connection(first)]
            break
        except OSError:
            time.sleep(0.1)
else:
    server = socket.create_server(first)
    others = [server.accept()[0] for _ in range(count - 1)]
files = [one.makefile("rw") for one in others]
def tell(file, value):
    print(value, file=file, flush=True)
def hear(file):
    return int(file.readline())  # an empty line, of a worker that is gone, is no number
for step in range(int(os.environ["TPUCTL_RESUME_STEP"] or 0) + 1, 9):
    while step == 5 and not me and not go.exists():
        time.sleep(0.1)
    if me:
        tell(files[0], state * (me + 1))
        state = hear(files[0])
    else:
        state = (state + sum(map(hear, files))) * 6364136223846793005 % 2**64
        for file in files:
            tell(file, state)
    print("made step", step, state, flush=True)
    folder = place / f"step-{step}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"state-{me}").write_text(str(state))
    (folder / "COMPLETE").write_text("")
"""
STEPS, WORKERS = 8, 2


def unbroken() -> dict[int, int]:
    """Return the state after each step of a run that nothing interrupts."""
    state, found = 1, {}
    for step in range(1, STEPS + 1):
        state = sum(state * (me + 1) for me in range(WORKERS)) * 6364136223846793005 % 2**64
        found[step] = state
    return found


@pytest.mark.usefixtures("slurm_packages")
def test_a_lost_slice_ends_the_attempt_on_all_and_they_start_together_from_one_checkpoint(lab):
    """Two slices are two workers of one job; the lost one comes back as another TPU."""
    go = lab.work / "GO"
    (lab.work / "src").mkdir()
    (lab.work / "src" / "train.py").write_text(TRAIN.replace("GO", str(go)))
    (lab.work / "tpuctl.yaml").write_text(FLEET)
    (lab.work / "wide.yaml").write_text(JOB)
    lab.tpuctl("fleet", "up", "--yes")
    watch = lab.start("fleet", "watch")
    lab.tpuctl("fleet", "submit", "wide.yaml")
    folder, part = "jobs/wide/tasks/0/", "checkpoints/00000004/g1/w{}.manifest.json"
    all_of_it = {folder + part.format(worker) for worker in range(WORKERS)}
    lab.wait_for(
        "step 4 of all in the bucket", lambda: all_of_it <= set(lab.objects(f"{folder}checkpoints/"))
    )
    shown = json.loads(lab.tpuctl("fleet", "status", "--json").out)
    assert ({row["task"] for row in shown["nodes"]}, shown["tasks_running"]) == ({"wide/0"}, 1)
    # Not the one on which Slurm has started the task, whose end Slurm would see by itself.
    names = [row["name"] for row in shown["nodes"]]
    (second,) = [n for n in names if json.loads(lab.read(f"nodes/{n}/.tpuctl/share.json"))["slice"] == 1]
    lab.tpuctl("local", "preempt", f"{second}-tpu-g1", "--no-notice")
    lab.wait_for("the second start", lambda: lab.objects(f"{folder}.tpuctl/gang/2/0"))
    go.touch()
    lab.wait_for("the task's end", lambda: lab.objects("jobs/wide/ends/0.done"))
    logs = {(g, w): _log(lab, folder, g, w) for g in (1, 2) for w in range(WORKERS)}
    for worker in range(WORKERS):
        assert logs[1, worker] | logs[2, worker] == unbroken()
        assert list(logs[2, worker]) == [5, 6, 7, 8]
    lab.tpuctl("fleet", "fetch", "wide")
    saved = sorted((lab.work / "wide-checkpoints" / "0").rglob("state-*"))
    assert [one.read_text() for one in saved] == [str(unbroken()[STEPS])] * WORKERS
    watch.send_signal(signal.SIGINT)
    lab.end(watch, expect=None)
    lab.tpuctl("fleet", "down", "--yes", "--delete-data")
    assert [machine for machine in lab.machines() if machine["running"]] == []


def _log(lab, folder: str, incarnation: int, worker: int) -> dict[int, int]:
    """Return the state after each step that one worker has printed in one start."""
    names = lab.objects(f"{folder}logs/g{incarnation}/w{worker}/")
    lines = b"".join(lab.read(name) for name in names).decode().splitlines()
    found = (line.split() for line in lines if line.startswith("made step"))
    return {int(step): int(state) for _, _, step, state in found}
