"""
Report a newer tpuctl, at most once a day, to users at a terminal.

Nothing is released yet, and users must not be led to another project's package of the same name. So it looks
only if TPUCTL_UPDATE_INDEX names the JSON page of the package on an index. No command waits for it: a
separate process asks, and the next command reports the result. The request contains nothing but that address.
"""

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import platformdirs

from orchestrator.contract.replacing import replacing
from orchestrator.private_folders import private_folder

INDEX = "TPUCTL_UPDATE_INDEX"
DAY = 86400.0
OFF = "TPUCTL_NO_UPDATE_CHECK"
MAX_BYTES = 4 << 20
"""Bytes of an answer to read at most."""
TIMEOUT = 10.0
"""Seconds for the index to answer, in a process that no command waits for."""
QUIET = frozenset(
    ("--help", "-h", "--version", "--json", "--cloud=local", "local", "demo", "rehearse", "completion")
)
"""Arguments with which nothing is reported: a program reads the output, or it is a rehearsal."""
# Digits and dots only, so that a hijacked index cannot print text on the terminal.
_VERSION = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9}){0,4}")


def report_newer(words: Sequence[str], version: str) -> None:
    """
    Report a newer version than *version* if one is known, and look it up at most once a day.

    The caller makes sure that stderr is a terminal. Never raises, since the command's own result matters.
    """
    with suppress(Exception):
        if wanted(words, os.environ) and sys.stdin.isatty():
            _report(_state_path(), version, time.time())


def wanted(words: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Return whether to look for a newer release: an index is configured, and a person reads the output."""
    if not environment.get(INDEX):
        return False
    quiet = any(environment.get(name) for name in (OFF, "CI", "_TPUCTL_COMPLETE"))
    local = environment.get("TPUCTL_CLOUD") == "local"
    return bool(words) and not (quiet or local or QUIET & set(words))


def newer(found: object, version: str) -> bool:
    """Return whether *found* is a later version number; False for anything else."""
    return isinstance(found, str) and bool(_VERSION.fullmatch(found)) and _parts(found) > _parts(version)


def _parts(version: str) -> list[int]:
    parts = [int(part) for part in re.findall(r"\d+", version)[:5]]
    return parts + [0] * (5 - len(parts))


def _state_path() -> Path:
    return platformdirs.user_cache_path("tpuctl") / "update.json"


def _report(path: Path, version: str, now: float) -> None:
    private_folder(path.parent)
    held = _held(path)
    # Matched again before printing, since the cache file may contain anything by now.
    if newer(held.get("latest"), version) and _is_due(held.get("told"), now):
        sys.stderr.write(f"tpuctl {held['latest']} is out, this is {version}\n")
        sys.stderr.write(f"  next:  pip install --upgrade tpuctl (or say no more of it: {OFF}=1)\n")
        held = {**held, "told": now}
        _keep(path, held)
    if _is_due(held.get("asked"), now):
        # Before the request: an index that hangs is asked once a day too, and two commands ask once.
        _keep(path, {**held, "asked": now})
        _ask_index(path)


def _is_due(last: object, now: float) -> bool:
    """Return whether a day has passed; true for a future time, which another clock must have written."""
    return not isinstance(last, float) or not 0 <= now - last < DAY


def _held(path: Path) -> dict[str, Any]:
    with suppress(OSError, ValueError):
        found = json.loads(path.read_bytes())
        if isinstance(found, dict):
            return found
    return {}


def _keep(path: Path, held: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(held).encode())


def _ask_index(path: Path) -> None:
    """Start a process that asks the index; it outlives this one and imports nothing from the current folder."""
    subprocess.Popen(
        [sys.executable, "-I", __file__, os.environ[INDEX], str(path)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # A session of its own: Ctrl-C of the next command does not reach it, and no shell waits for it.
        start_new_session=True,
    )


def latest(address: str) -> str:
    """Return the newest version in the index. Raise OSError, or ValueError for an unusable answer."""
    if not address.startswith(("https://", "http://")):
        raise ValueError("the index has no address of the web")
    request = urllib.request.Request(address, headers={"User-Agent": "tpuctl"})  # noqa: S310 (checked above)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:  # noqa: S310
        info = json.loads(answer.read(MAX_BYTES)).get("info")
    found = info.get("version") if isinstance(info, dict) and not info.get("yanked") else None
    if not isinstance(found, str) or not _VERSION.fullmatch(found):
        raise ValueError("the index names no release")
    return found


if __name__ == "__main__":
    with suppress(Exception):
        found, file = latest(sys.argv[1]), Path(sys.argv[2])
        _keep(file, {**_held(file), "latest": found})
