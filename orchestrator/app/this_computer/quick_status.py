"""
Read the status from a watcher on this computer, without Google's clients or the work of a pass.

`up` validates the file and stores a mark of it beside the record; a file with the same mark is not validated
again. Every unusual case falls back to the normal way, which reports the cause.
"""

import hashlib
import json
import os
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator.app.this_computer.holder import process_ended
from orchestrator.app.this_computer.state_folders import known_files
from orchestrator.clock import SystemClock
from orchestrator.config.find import find
from orchestrator.domain.checksum import verified
from orchestrator.domain.status import DeploymentStatus, StatusSource
from orchestrator.domain.text.units import Duration
from orchestrator.engine.publish.published_status import PublishedStatus, published_here
from orchestrator.errors import UsageError

MARK = "file-mark"
"""File beside the record with the mark of the deployment file that was read last."""
NAME_IN_ENV = "GOOGLE_CLOUD_PROJECT"
"""Variable with the project for a file that names none."""
NO_SETTINGS = {"TPUCTL_NO_UPDATE_CHECK", "TPUCTL_UPDATE_INDEX"}
"""Our variables that change nothing about a deployment, and may differ between terminals."""


def keep_mark(cloud: str, project: str | None, file: Path, folder: Path) -> None:
    """Store the mark of *file*, unless its project comes from the login, which may change."""
    if cloud != "local" and not project:
        return
    with suppress(OSError):
        wanted, place = _mark(file), folder / MARK
        if folder.is_dir() and _read(place) != wanted:
            place.write_text(wanted)


def published_on(cloud: str, file: Path | None, name: str | None) -> PublishedStatus | None:
    """Return what a watcher of this computer has published; None if the cloud must be asked."""
    known = known_files(cloud)
    folder = _named(known, name) if name else _of_file(known, file)
    now = SystemClock().now()
    found = published_here(folder, now, process_ended) if folder else None
    # Commands also end expired deployments, which needs the cloud.
    if found is None or any(_may_be_over(path, now) for path in known if path.parent != folder):
        return None
    return found


def aged_status(found: PublishedStatus) -> DeploymentStatus:
    """Return a published status with its age and source."""
    watcher = found.status.watcher
    on_vm = watcher is not None and watcher.on == "vm"
    return aged(found.status, found.age, "the loop on the VM" if on_vm else "the watcher")


def aged(status: DeploymentStatus, seconds: float, by: str) -> DeploymentStatus:
    """Return a published status as it is *seconds* later; *by* names its source."""

    def older(age: float | None) -> float | None:
        return None if age is None else round(age + seconds, 1)

    def remaining(time: float | None) -> float | None:
        return None if time is None else round(max(0.0, time - seconds), 1)

    workers = tuple(
        replace(
            worker,
            checkpoint_age_s=older(worker.checkpoint_age_s),
            heartbeat_age_s=older(worker.heartbeat_age_s),
        )
        for worker in status.workers
    )
    watcher, waits = status.watcher, tuple(wait.later(seconds) for wait in status.waits_for)
    return replace(
        status,
        next_pass_in_s=remaining(status.next_pass_in_s),
        ttl_remaining_s=remaining(status.ttl_remaining_s),
        eta_s=remaining(status.eta_s),
        workers=workers,
        watcher=watcher and replace(watcher, renewed_age_s=round(watcher.renewed_age_s + seconds, 1)),
        source=StatusSource(by=by, age_s=round(seconds, 1)),
        waits_for=waits,
    )


def _named(known: list[Path], name: str) -> Path | None:
    chosen = [path.parent for path in known if path.parent.name == name]
    return chosen[0] if len(chosen) == 1 else None


def _of_file(known: list[Path], file: Path | None) -> Path | None:
    """Return the folder of the only deployment whose mark fits this file, else None."""
    try:
        wanted = _mark(file or find(Path.cwd()))
    except (OSError, UsageError):
        return None
    chosen = [path.parent for path in known if _read(path.parent / MARK) == wanted]
    return chosen[0] if len(chosen) == 1 else None


def _mark(path: Path) -> str:
    """Return a digest of what determines a deployment: the file's bytes and the variables that override it."""
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
    """Return whether the ttl of a deployment may be over, so that the normal way must check it."""
    try:
        ttl: Any = Duration.parse(verified(spec_file.read_bytes())["watch"]["ttl"])
        # "history" is the record's key in the stored format; decoding all of it would cost what this saves.
        history = verified((spec_file.parent / "record.json").read_bytes())["history"]
        asked = history["accepted"] or history["requested_at"]
        if not history["started_at"] or not (asked or any(s["until"] is None for s in history["spans"])):
            return False
        return bool(now - float(history["started_at"]) >= ttl)
    except FileNotFoundError:
        return False
    # Unreadable may mean expired, so the normal way must check.
    except (OSError, ValueError, TypeError, KeyError):
        return True
