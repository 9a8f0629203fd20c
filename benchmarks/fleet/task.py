"""
A task as a sweep has many: steps, a save every few of them, and back from the save after a preemption.

Run as a job of a fleet: `task.py STEPS EVERY SECONDS`. It notes each step in $BENCH_STEPS: when, by which start of
the task, and its number.
"""

import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Make the steps that are left."""
    steps, every, pause = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    place, start = Path(os.environ["TPUCTL_CHECKPOINT_DIR"]), os.environ["TPUCTL_INCARNATION"]
    notes = Path(os.environ["BENCH_STEPS"]) / f"{os.environ['TASK']}.{os.environ['TPUCTL_WORKER_ID']}"
    with notes.open("a", buffering=1) as lines:
        for step in range(int(os.environ["TPUCTL_RESUME_STEP"] or 0) + 1, steps + 1):
            time.sleep(pause)
            lines.write(f"{time.time():.3f} {start} {step}\n")
            if step % every == 0 or step == steps:
                folder = place / f"step-{step}"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "model").write_text(str(step))
                (folder / "COMPLETE").write_text("")


if __name__ == "__main__":
    main()
