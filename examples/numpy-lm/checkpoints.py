"""
Checkpoints that are either whole or ignored: one folder a step, a marker file written last.
"""

import io
import os
import re
import shutil
from pathlib import Path

import numpy as np

MARKER = os.environ.get("TPUCTL_CHECKPOINT_MARKER", "COMPLETE")


def save(folder, step, state, keep):
    """
    Write `step-000040/state.npz`, then the marker, and remove all but the newest *keep*.
    """
    target = Path(folder) / f"step-{step:06d}"
    if (target / MARKER).is_file():
        return
    target.mkdir(parents=True, exist_ok=True)
    buffer = io.BytesIO()
    np.savez(buffer, **state)
    write(target / "state.npz", buffer.getvalue())
    write(target / MARKER, f"{step}\n".encode())
    for old in complete(folder)[:-keep]:
        folder_of_old = target.parent / f"step-{old:06d}"
        (folder_of_old / MARKER).unlink()  # First, so that a kill in between leaves nothing that looks whole.
        shutil.rmtree(folder_of_old, ignore_errors=True)


def complete(folder):
    """
    Return the steps whose checkpoints are complete, oldest first.
    """
    matches = (re.fullmatch(r"step-(\d+)", path.name) for path in Path(folder).glob("step-*"))
    steps = sorted(int(match[1]) for match in matches if match)
    return [step for step in steps if (Path(folder) / f"step-{step:06d}" / MARKER).is_file()]


def load(folder):
    """
    Return step and state of the newest complete checkpoint; (0, None) when there is none.
    """
    steps = complete(folder)
    if not steps:
        return 0, None
    with np.load(Path(folder) / f"step-{steps[-1]:06d}" / "state.npz") as file:
        return steps[-1], {name: file[name] for name in file.files}


def write(path, data):
    """
    Replace a file so that a reader, or a machine that loses power, has the old one or the new one.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    with temporary.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
