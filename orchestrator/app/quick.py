"""
The status of a deployment whose watcher runs on this computer, without what a pass or Google's clients need.

`up` has judged the file and keeps a mark of it beside the record: a file with the same mark is not judged
anew. Wherever anything is unusual the long way is gone, and says what it is.
"""

import hashlib
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from orchestrator.app.session import Session
    from orchestrator.engine.published_copy import Snapshot

MARK = "file-mark"
"""Beside the record: the mark of the deployment file that was read last."""
NAME_IN_ENV = "GOOGLE_CLOUD_PROJECT"
"""What names the project of a file that names none."""
NO_SETTINGS = {"TPUCTL_NO_UPDATE_CHECK", "TPUCTL_UPDATE_INDEX"}
"""Variables of ours that change nothing about a deployment, and may differ from one terminal to the next."""


def keep_mark(session: "Session") -> None:
    """Remember which file this deployment is of; not one whose project comes from a login, which may change."""
    if session.choice.cloud != "local" and not session.spec.project:
        return
    with suppress(OSError):
        wanted, place = _mark(session.path), session.folder / MARK
        if session.folder.is_dir() and _read(place) != wanted:
            place.write_text(wanted)


def seen_here(cloud: str, file: Path | None, name: str | None) -> "Snapshot | None":
    """Return what a watcher of this computer has published; None when that cannot be told without a closer look."""
    from orchestrator.app.holder import gone
    from orchestrator.app.state_folders import kept_files
    from orchestrator.clock import SystemClock
    from orchestrator.engine.published_copy import published_here

    kept = kept_files(cloud)
    folder = _named(kept, name) if name else _of_file(kept, file)
    now = SystemClock().now()
    found = published_here(folder, now, gone) if folder else None
    if found is None or any(_may_be_over(path, now) for path in kept if path.parent != folder):
        return None
    return found


def _named(kept: list[Path], name: str) -> Path | None:
    chosen = [path.parent for path in kept if path.parent.name == name]
    return chosen[0] if len(chosen) == 1 else None


def _of_file(kept: list[Path], file: Path | None) -> Path | None:
    """Return the folder of the one deployment that is of this file as it is now."""
    from orchestrator.config.find import find
    from orchestrator.errors import UsageError

    try:
        wanted = _mark(file or find(Path.cwd()))
    except (OSError, UsageError):
        return None
    chosen = [path.parent for path in kept if _read(path.parent / MARK) == wanted]
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


def _may_be_over(kept: Path, now: float) -> bool:
    """Say whether the time to live of a deployment may be over, so that somebody has to look closer."""
    from orchestrator.domain.checksum import verified
    from orchestrator.domain.units import Duration

    try:
        ttl: Any = Duration.parse(verified(kept.read_bytes())["watch"]["ttl"])
        history = verified((kept.parent / "record.json").read_bytes())["history"]
        asked = history["accepted"] or history["requested_at"]
        if not history["started_at"] or not (asked or any(s["until"] is None for s in history["spans"])):
            return False
        return bool(now - float(history["started_at"]) >= ttl)
    except FileNotFoundError:
        return False
    except (OSError, ValueError, TypeError, KeyError):
        return True
