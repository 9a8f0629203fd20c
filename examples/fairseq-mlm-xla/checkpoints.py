"""
Make fairseq's checkpoint_last.pt what it should be: a whole copy of the newest whole checkpoint.

fairseq starts from that file only, and writes it by copying over the old one. A machine that goes away during
the copy leaves a torn file, and then every later start fails.
"""

import filecmp
import math
import os
import re
import shutil
import time
import zipfile
import zlib
from pathlib import Path

LAST = "checkpoint_last.pt"
NAME = re.compile(r"checkpoint(?P<end>\d+)\.pt|checkpoint_(?P<epoch>\d+)_(?P<updates>\d+)\.pt")


def age(name):
    """
    Return (epoch, updates) to sort by; a save at the end of an epoch comes after those within it.
    """
    match = NAME.fullmatch(name)
    if not match:
        return None
    if match["end"]:
        return int(match["end"]), math.inf
    return int(match["epoch"]), int(match["updates"])


def whole(path):
    """
    Say whether *path* is complete: since 2020 torch writes zip files, which carry checksums.
    """
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (OSError, zipfile.BadZipFile, zlib.error, EOFError):
        return False


def updates(path):
    """
    Return the number of updates that a whole checkpoint holds.
    """
    import torch

    state = torch.load(path, map_location="cpu", mmap=True, weights_only=False)
    return state["optimizer_history"][-1]["num_updates"]


def put_aside(path):
    """
    Rename a torn file, so that fairseq does not load it and a person can look at it.
    """
    target = path.with_name(f"torn-{path.name}-{time.strftime('%Y%m%dT%H%M%S')}")
    path.rename(target)
    print(f"repair: {path.name} is torn; it is now {target.name}", flush=True)


def repair(folder):
    """
    Repair *folder* and return the file that fairseq will start from; None for a first start.
    """
    folder = Path(folder)
    for temporary in folder.glob("*.pt.tmp"):
        temporary.unlink()
    last = folder / LAST
    named = [path for path in folder.glob("checkpoint*.pt") if age(path.name)]
    named.sort(key=lambda path: age(path.name))
    while named and not whole(named[-1]):
        put_aside(named.pop())
    if last.exists() and not whole(last):
        put_aside(last)
    if not named:
        return last if last.exists() else None
    newest = named[-1]
    if last.exists() and (filecmp.cmp(newest, last, shallow=False) or updates(last) > updates(newest)):
        return last
    temporary = folder / f"{LAST}.tmp"
    shutil.copyfile(newest, temporary)
    with temporary.open("rb") as file:
        os.fsync(file.fileno())
    temporary.replace(last)
    print(f"repair: {LAST} is now a copy of {newest.name}, the newest whole checkpoint", flush=True)
    return last
