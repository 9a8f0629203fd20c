"""
Checkpoints that survive a kill at any moment: step_000040.pt, then the pointer last.json.

Both are written beside their name, forced to disk and renamed, so a name never stands for half a file.
"""

import json
import os
from pathlib import Path

import torch


def save(folder, step, state, keep):
    """
    Write the file of *step*, then let the pointer name it, then remove all but the newest *keep*.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    name = f"step_{step:06d}.pt"
    _durably(folder / name, lambda file: torch.save(state, file))
    text = json.dumps({"step": step, "file": name})
    _durably(folder / "last.json", lambda file: file.write(text.encode()))
    for old in sorted(folder.glob("step_*.pt"))[: -max(2, keep)]:
        old.unlink()


def newest(folder):
    """
    Return the path to resume from, or None: what the agent chose, else what the pointer names.
    """
    if "TPUCTL_RESUME" in os.environ:
        return os.environ["TPUCTL_RESUME"] or None
    pointer = Path(folder) / "last.json"
    return Path(folder) / json.loads(pointer.read_text())["file"] if pointer.is_file() else None


def _durably(path, write):
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as file:
        write(file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
