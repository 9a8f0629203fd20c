"""Word that a job fails again and again: it runs between two failures, so its phase does not tell."""

from collections.abc import Sequence

from orchestrator.contract.phase import ENDS
from orchestrator.domain.heartbeat import Heartbeat

JOB_FAILS = "the job fails"


def failing_heartbeat(heartbeats: Sequence[Heartbeat]) -> Heartbeat | None:
    """Return the report with the most failures without progress; None if there are none, or the job has ended."""
    failing = [heartbeat for heartbeat in heartbeats if heartbeat.failures and heartbeat.phase not in ENDS]
    return max(failing, key=lambda heartbeat: heartbeat.failures, default=None)


def failing_text(heartbeats: Sequence[Heartbeat], limit: int) -> str:
    """Return how often in a row the job has failed of *limit* (`job.failures`), and how; "" if it has not."""
    found = failing_heartbeat(heartbeats)
    if found is None:
        return ""
    end = found.failure_message or found.message
    count = f"{found.failures} of {limit} attempts in a row brought no progress (job.failures)"
    return f"{count}; the last: {end}" if end else count


def failing_in_short(heartbeats: Sequence[Heartbeat], limit: int, *, with_message: bool = True) -> str:
    """Return the same in few words, the job's own last line last if *with_message*; "" without failures."""
    found = failing_heartbeat(heartbeats)
    if found is None:
        return ""
    # The line may be cut at the terminal's edge, and the job's own last line names the error.
    end = (found.failure_line or found.failure_message or found.message) if with_message else ""
    count = f"failed {found.failures} of {limit} times"
    return f"{count}: {end}" if end else f"{count} in a row"
