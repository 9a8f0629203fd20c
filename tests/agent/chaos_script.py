"""
A training job whose every step depends on the one before, so that a torn or mixed state cannot stay hidden.

It refuses to run beside another job of the deployment, and a checkpoint that is not one step's whole state.
"""

import fcntl
import hashlib
import json
import os
import sys
import time
from pathlib import Path

EVERY = 10
WEIGHTS = 5000
ORPHANED = 20.0


def after(state, step):
    """Return the state after a step."""
    return hashlib.sha256(f"{state} {step}".encode()).hexdigest()


def files(step, state):
    """Return the files of a step's checkpoint by name, marker last."""
    weights = (state.encode() * WEIGHTS)[:WEIGHTS]
    text = json.dumps({"step": step, "state": state}).encode()
    return {"part/weights.bin": weights, "state.json": text, "COMPLETE": b""}


def choose(folder, say):
    """Return step and state of the newest checkpoint on disk."""
    step = max((int(one.parent.name.split("-")[1]) for one in folder.glob("step-*/COMPLETE")), default=0)
    if str(step or "") != os.environ["TPUCTL_RESUME_STEP"]:
        say(f"resumes from {step}, was given {os.environ['TPUCTL_RESUME_STEP']}")
    if not step:
        return 0, "start"
    place = folder / f"step-{step:06d}"
    state = json.loads((place / "state.json").read_text())["state"]
    if any((place / name).read_bytes() != data for name, data in files(step, state).items()):
        say(f"the checkpoint of step {step} is torn")
    return step, state


def train():
    """Go on from the newest checkpoint on disk to the last step, and stay until the agent has committed that."""
    folder, last = Path(os.environ["TPUCTL_CHECKPOINT_DIR"]), int(os.environ["TPUCTL_TARGET_STEPS"])
    agent = os.getppid()
    status = Path(os.environ["TPUCTL_ROOT"]) / "state" / "status.json"
    notes = (Path(os.environ["CHAOS_NOTES"]) / f"worker-{os.environ['TPUCTL_WORKER_ID']}").open("a")
    try:
        fcntl.flock(notes, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        print("two jobs at once", file=notes, flush=True)
        sys.exit(9)
    print(f"attempt {os.environ['TPUCTL_JOB']}", file=notes, flush=True)
    step, state = choose(folder, lambda text: print(text, file=notes, flush=True))
    while step < last:
        step += 1
        state = after(state, step)
        if step % EVERY == 0:
            for name, data in files(step, state).items():
                target = folder / f"step-{step:06d}" / name
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(data)
    while json.loads(status.read_text())["committed_step"] != last:
        time.sleep(0.02)  # this program runs on a machine: nothing of ours is there to wait with
    # A job without its agent does not end by itself: the next agent has to end it.
    time.sleep(float(os.environ["CHAOS_STAY"]) if os.getppid() == agent else ORPHANED)


if __name__ == "__main__":
    train()
