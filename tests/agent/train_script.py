"""A training script in miniature: counts steps, saves with a marker, resumes, saves once more on SIGTERM."""

import json
import os
import signal
import sys
import time
from pathlib import Path

FOLDER = Path(os.environ["TPUCTL_CHECKPOINT_DIR"])
LAST = int(os.environ.get("STEPS", "40"))
EVERY = int(os.environ.get("SAVE_EVERY", "10"))
PAUSE = float(os.environ.get("STEP_SECONDS", "0.01"))
CRASH_AT = {int(step) for step in os.environ.get("CRASH_AT", "").split(",") if step}
CRASHES = int(os.environ.get("CRASHES", "1000"))
EACH_COMMITTED = "EACH_COMMITTED" in os.environ
WAITS_FOR = os.environ.get("WAITS_FOR", "")
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))


def newest():
    """Return the newest step with a marker."""
    whole = [int(one.parent.name.split("-")[1]) for one in FOLDER.glob("step-*/COMPLETE")]
    return max(whole, default=0)


def save(step):
    """Save one step, marker last."""
    folder = FOLDER / f"step-{step:06d}"
    (folder / "part").mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(json.dumps({"step": step, "pid": os.getpid()}))
    (folder / "part" / "weights.bin").write_bytes(bytes([step % 256]) * 5000)
    (folder / "COMPLETE").write_text("")


def rest(step):
    """After a save, wait for a file or for the commit if the test asks for it."""
    status = Path(os.environ["TPUCTL_ROOT"]) / "state" / "status.json"
    # This program runs on a machine: nothing of ours is there to wait with.
    while WAITS_FOR and not Path(WAITS_FOR).exists():
        time.sleep(0.02)  # as above
    while EACH_COMMITTED and (json.loads(status.read_text())["committed_step"] or 0) < step:
        time.sleep(0.02)  # as above


def report(step):
    """Report the step to the agent."""
    target = Path(os.environ["TPUCTL_PROGRESS_FILE"])
    temporary = target.with_suffix(".tmp")
    temporary.write_text(json.dumps({"step": step, "loss": 1 / step}))
    temporary.replace(target)


step = newest()
print(f"begin after {step}, asked for {os.environ['TPUCTL_RESUME_STEP'] or 'none'}", flush=True)
while step < LAST:
    step += 1
    time.sleep(PAUSE)  # a step of a training program takes its time
    report(step)
    print(f"step {step}", flush=True)
    if step % EVERY == 0 or (step == LAST and "NO_LAST_SAVE" not in os.environ) or asked:
        save(step)
        rest(step)
    if asked:
        print("saved on request", flush=True)
        sys.exit(143)
    crashes = len(list(FOLDER.parent.glob("crash-*")))
    if step in CRASH_AT and crashes < CRASHES:
        (FOLDER.parent / f"crash-{crashes}").write_text("")
        # The agent must read the step before the program ends, and nothing shows the program that it has.
        time.sleep(float(os.environ.get("CRASH_AFTER_SECONDS", "0.4")))
        sys.exit(7)
print("trained", flush=True)
