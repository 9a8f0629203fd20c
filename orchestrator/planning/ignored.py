"""Word that a job does not begin at the checkpoint that was restored for it."""

from collections.abc import Sequence

from orchestrator.domain.heartbeat import Heartbeat


def ignored_text(heartbeats: Sequence[Heartbeat]) -> str:
    """Return the first report that a job ignores its checkpoint; "" if none says so."""
    return next((heartbeat.ignored_message for heartbeat in heartbeats if heartbeat.ignored_message), "")
