"""
The status of a deployment whose watcher runs on this computer, without what a pass or Google's clients need.

`up` has judged the file and keeps a mark of it beside the record: a file with the same mark is not judged
anew. Whatever is unusual is left to the long way, which says what it is.
"""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from orchestrator.app.holder import process_ended
from orchestrator.app.state_folders import known_files
from orchestrator.clock import SystemClock
from orchestrator.config.find import find
from orchestrator.domain.checksum import verified
from orchestrator.domain.units import Duration
from orchestrator.engine.published_copy import Snapshot, published_here
from orchestrator.errors import UsageError

MARK = "file-mark"
"""Beside the record: the mark of the deployment file that was read last."""
NAME_IN_ENV = "GOOGLE_CLOUD_PROJECT"
"""What names the project of a file that names none."""
NO_SETTINGS = {"TPUCTL_NO_UPDATE_CHECK", "TPUCTL_UPDATE_INDEX"}
"""Variables of ours that change nothing about a deployment, and may differ from one terminal to the next."""


def keep_mark(cloud: str, project: str | None, file: Path, folder: Path) -> None:
    """Remember of which *file* a deployment is; not one whose project comes from a login, which may change."""
    if cloud != "local" and not project:
        return
    with suppress(OSError):
        wanted, place = _mark(file), folder / MARK
        if folder.is_dir() and _read(place) != wanted:
            place.write_text(wanted)


def published_on(cloud: str, file: Path | None, name: str | None) -> Snapshot | None:
    """Return what a watcher of this computer has published; None when that cannot be said without the cloud."""
    known = known_files(cloud)
    folder = _named(known, name) if name else _of_file(known, file)
    now = SystemClock().now()
    found = published_here(folder, now, process_ended) if folder else None
    # Each command ends deployments whose time is over, and that takes the cloud.
    if found is None or any(_may_be_over(path, now) for path in known if path.parent != folder):
        return None
    return found


def aged_status(found: Snapshot) -> dict[str, Any]:
    """Return a published status with its age and whose observation it is."""
    loop = found.body["loop"]
    return aged(found.body, found.age, "the loop on the VM" if loop["where"] == "vm" else "the watcher")


def aged(body: dict[str, Any], seconds: float, by: str) -> dict[str, Any]:
    """Return a published status with the ages that it has *seconds* later; *by* names who made it."""

    def older(row: dict[str, Any], *keys: str) -> dict[str, Any]:
        known = {key: round(row[key] + seconds, 1) for key in keys if row.get(key) is not None}
        return {**row, **known}

    remaining = {
        key: None if body.get(key) is None else round(max(0.0, body[key] - seconds), 1)
        for key in ("look_in_s", "ttl_left_s", "eta_s")
    }
    workers = [older(row, "checkpoint_age_s", "heartbeat_age_s") for row in body["workers"]]
    loop = older(body["loop"], "renewed_age_s") if body["loop"] else None
    return {
        **body, **remaining, "workers": workers, "loop": loop, "seen": {"by": by, "age_s": round(seconds, 1)}
    }  # fmt: skip


def _named(known: list[Path], name: str) -> Path | None:
    chosen = [path.parent for path in known if path.parent.name == name]
    return chosen[0] if len(chosen) == 1 else None


def _of_file(known: list[Path], file: Path | None) -> Path | None:
    """Return the folder of the one deployment that is of this file as it is now."""
    try:
        wanted = _mark(file or find(Path.cwd()))
    except (OSError, UsageError):
        return None
    chosen = [path.parent for path in known if _read(path.parent / MARK) == wanted]
    return chosen[0] if len(chosen) == 1 else None


def _mark(path: Path) -> str:
    """Return a digest of all that makes a deployment of a file: its bytes, and the variables laid over them."""
    laid = {
        key: text
        for key, text in os.environ.items()
        if (key.startswith("TPUCTL_") and key not in NO_SETTINGS) or key == NAME_IN_ENV
    }
    return hashlib.sha256(json.dumps(sorted(laid.items())).encode() + path.read_bytes()).hexdigest()


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, ValueError):
        return ""


def _may_be_over(spec_file: Path, now: float) -> bool:
    """Say whether the time to live of a deployment may be over, so that somebody has to look closer."""
    try:
        ttl: Any = Duration.parse(verified(spec_file.read_bytes())["watch"]["ttl"])
        # "history" is the word of the stored format; decoding the whole record takes the time saved here.
        history = verified((spec_file.parent / "record.json").read_bytes())["history"]
        asked = history["accepted"] or history["requested_at"]
        if not history["started_at"] or not (asked or any(s["until"] is None for s in history["spans"])):
            return False
        return bool(now - float(history["started_at"]) >= ttl)
    except FileNotFoundError:
        return False
    # Unreadable may mean over: the long way looks closer.
    except (OSError, ValueError, TypeError, KeyError):
        return True
