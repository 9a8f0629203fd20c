"""
A task as a sweep has many: steps, a save every few of them, and back from the save after a loss.

Run as a program: `task.py FOLDER TASK STEPS SAVE_EVERY SECONDS`. It writes a line for each step, with the attempt.
"""

import os
import sys
import time
from pathlib import Path


def main() -> None:
    """Make the steps that are left."""
    folder, task, steps, every, pause = Path(sys.argv[1]), sys.argv[2], *map(float, sys.argv[3:6])
    saved = folder / f"{task}.saved"
    first = int(saved.read_text()) if saved.exists() else 0
    attempt = os.environ.get("SLURM_RESTART_COUNT", "0")
    with (folder / f"{task}.steps").open("a", buffering=1) as lines:
        for step in range(first + 1, int(steps) + 1):
            time.sleep(pause)
            lines.write(f"{time.time():.3f} {attempt} {step} {os.environ['SLURMD_NODENAME']}\n")
            if step % every == 0 or step == steps:
                whole = folder / f"{task}.{attempt}.part"
                whole.write_text(str(step))
                whole.replace(saved)


if __name__ == "__main__":
    main()
