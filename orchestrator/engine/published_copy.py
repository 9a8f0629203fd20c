"""
A published status as it is read: whose it is, whether it counts, and the copy on the computer of its loop.

Light, because `tpuctl status` reads it before anything else is imported.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.domain.checksum import Origin, origin_of, verified
from orchestrator.domain.lease import Holder
from orchestrator.errors import UNFORESEEN

FRESH = 75.0
"""Seconds for which a snapshot counts; the loop writes one each minute at the least."""
AHEAD = 5.0
"""Seconds by which the bucket's clock may be ahead of ours before ages by it mean nothing."""
HERE = "status.json"
"""The copy on the computer whose loop it is."""
SCHEMA = 1


@dataclass(frozen=True)
class Snapshot:
    """Hold a published status and its age in seconds."""

    body: dict[str, Any]
    age: float


def published_here(folder: Path, now: float, process_ended: Callable[[Holder], bool]) -> Snapshot | None:
    """Return the snapshot of a loop that runs on this computer; *process_ended* is asked about its process."""
    try:
        holder = Holder.from_json((folder / "holder").read_bytes())
        data = (folder / HERE).read_bytes()
    except (OSError, ValueError):
        return None
    # A killed loop leaves its copy behind: with its process gone it is nobody's word.
    return None if process_ended(holder) else counted(data, holder, now, None)


def counted(
    data: bytes, holder: Holder, now: float, updated: float | None, key: bytes | None = None
) -> Snapshot | None:
    """
    Return the snapshot when it is *holder*'s and fresh; *updated* is when the bucket got it.

    With *key* it has to be proven too: whoever writes to the bucket could say that nothing is there any more.
    """
    try:
        body = verified(data)
        if key is not None and origin_of(body, key) is not Origin.OURS:
            return None
        age = now - (updated if updated is not None else float(body["at"]))
        ours = body["schema"] == SCHEMA and body["holder"] == holder.id
        status = dict(body["status"])
    except UNFORESEEN:
        return None
    return Snapshot(status, max(0.0, age)) if ours and -AHEAD <= age < FRESH else None
