"""
Read a published status: whose it is, whether it is current, and the copy on the loop's own computer.

Imports little, because `tpuctl status` loads it before anything else.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.domain.checksum import Origin, origin_of, verified
from orchestrator.domain.lease import Holder
from orchestrator.domain.status import DeploymentStatus
from orchestrator.errors import UNFORESEEN

REWRITE, FRESH = 60.0, 75.0
"""Seconds after which the loop writes a published status even without news, and for which one is current."""
AHEAD = 5.0
"""Seconds that the bucket's clock may be ahead of ours; beyond that, ages by it mean nothing."""
HERE = "status.json"
"""Name of the copy on the computer that runs the loop."""
SCHEMA = 1


@dataclass(frozen=True)
class PublishedStatus:
    """A published status and its age in seconds."""

    status: DeploymentStatus
    age: float


def published_here(
    folder: Path, now: float, process_ended: Callable[[Holder], bool]
) -> PublishedStatus | None:
    """Return the published status of a loop that runs on this computer; *process_ended* checks its process."""
    try:
        holder = Holder.from_json((folder / "holder").read_bytes())
        data = (folder / HERE).read_bytes()
    except (OSError, ValueError):
        return None
    # A killed loop leaves its copy behind, so the copy counts only while its process runs.
    return None if process_ended(holder) else counted(data, holder, now, None)


def counted(
    data: bytes, holder: Holder, now: float, updated: float | None, key: bytes | None = None
) -> PublishedStatus | None:
    """
    Return the published status if *holder* wrote it and it is current; *updated* is its time by the bucket's clock.

    With *key* its proof is checked too: any program that may write to the bucket could claim that all is
    deleted.
    """
    try:
        body = verified(data)
        if key is not None and origin_of(body, key) is not Origin.OURS:
            return None
        age = now - (updated if updated is not None else float(body["at"]))
        ours = body["schema"] == SCHEMA and body["holder"] == holder.id
        status = DeploymentStatus.from_dict(body["status"])
    except UNFORESEEN:
        return None
    return PublishedStatus(status, max(0.0, age)) if ours and -AHEAD <= age < FRESH else None
