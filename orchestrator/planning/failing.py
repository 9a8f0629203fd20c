"""Word that a job fails again and again: it runs between two failures, so its phase does not tell."""

from collections.abc import Sequence

from orchestrator.contract.phase import ENDS
from orchestrator.domain.heartbeat import Heartbeat


def failing_heartbeat(heartbeats: Sequence[Heartbeat]) -> Heartbeat | None:
    """Return the report with the most failures without progress; None if there are none, or the job has ended."""
    failing = [heartbeat for heartbeat in heartbeats if heartbeat.failures and heartbeat.phase not in ENDS]
    return max(failing, key=lambda heartbeat: heartbeat.failures, default=None)


def failing_text(heartbeats: Sequence[Heartbeat], limit: int) -> str:
    """Return how often in a row the job has failed, why, and its *limit* (`job.failures`); "" if it has not."""
    found = failing_heartbeat(heartbeats)
    if found is None:
        return ""
    reason = found.failure_message or found.message
    count = (
        "the last attempt failed without progress"
        if found.failures == 1
        else f"{found.failures} attempts in a row failed without progress"
    )
    last = "" if not reason else f": {reason}" if found.failures == 1 else f"; the last: {reason}"
    return f"{count}{last}; the job is given up after {limit} (job.failures)"


def failing_in_short(heartbeats: Sequence[Heartbeat], limit: int, *, with_message: bool = True) -> str:
    """Return the same in few words, the reason last if *with_message*; "" without failures."""
    found = failing_heartbeat(heartbeats)
    if found is None:
        return ""
    reason = (found.failure_message or found.message) if with_message else ""
    return f"failed {found.failures} of {limit} times in a row{f': {reason}' if reason else ''}"
