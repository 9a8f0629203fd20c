"""Learn a job's progress from its workers' reports, so that a deadline can be met."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Node

MAX_START = 3 * 3600.0
"""Seconds beyond which a start counts as an exception and not as a measure of the next one."""
MAX_REST = 1e9
"""Longest believable remaining time of a job, in seconds (three decades)."""


@dataclass(frozen=True)
class ProgressEstimate:
    """
    How far a job is and how fast. *step* is the newest that every worker has committed.

    *seconds_per_step* is measured over the last start, *cold* is the seconds from requesting the TPU to the
    job's first step, *commit_interval* those between two commits; each is 0 while unknown. *spot_refused_at* is
    the time of the last spot stockout.
    """

    step: int = 0
    seconds_per_step: float = 0.0
    cold: float = 0.0
    commit_interval: float = 0.0
    committed_at: float = 0.0
    spot_refused_at: float = 0.0


def common_step(heartbeats: Sequence[Heartbeat]) -> int | None:
    """
    Return the newest step that every worker has committed, None without one: only from there a gang resumes.

    Workers that save faster than they can upload may each have committed other steps.
    """
    if any(_names_only_the_newest(heartbeat) for heartbeat in heartbeats):
        newest = [
            heartbeat.resumed_from if heartbeat.committed_step is None else heartbeat.committed_step
            for heartbeat in heartbeats
        ]
        numbers = [step for step in newest if step is not None]
        return min(numbers) if len(numbers) == len(heartbeats) else None
    known = [{*heartbeat.committed_steps, heartbeat.resumed_from} - {None} for heartbeat in heartbeats]
    return (
        max((step for step in set.intersection(*known) if step is not None), default=None) if known else None
    )


def _names_only_the_newest(heartbeat: Heartbeat) -> bool:
    return heartbeat.committed_step not in {None, heartbeat.resumed_from, *heartbeat.committed_steps}


def with_heartbeats(
    known: ProgressEstimate, heartbeats: tuple[Heartbeat, ...], node: Node | None
) -> ProgressEstimate:
    """Return the progress updated by the reports of the newest TPU's workers."""
    if not heartbeats:
        return known
    # The slowest worker counts, because a gang is as far as its last worker.
    last = min(heartbeats, key=lambda heartbeat: heartbeat.step or 0)
    known = replace(known, seconds_per_step=_seconds_per_step(last) or known.seconds_per_step)
    first = last.timings.get("first_step")
    # Two clocks are involved, the machine's and Google's, so negative or absurd values are dropped.
    if first is not None and node is not None and 0 < first - node.created_at < MAX_START:
        known = replace(known, cold=first - node.created_at)
    step = common_step(heartbeats) or 0
    if step < known.step and all(heartbeat.phase is Phase.RUN for heartbeat in heartbeats):
        # Whatever an earlier machine reported, or saved and lost: the job resumes from here.
        return replace(known, step=step)
    return known if step <= known.step else _committed(known, last, step, node)


def _committed(
    known: ProgressEstimate, heartbeat: Heartbeat, step: int, node: Node | None
) -> ProgressEstimate:
    # A machine's clock may be wrong: no event is later than its report, or earlier than its TPU.
    at = min(heartbeat.committed_at or heartbeat.updated, heartbeat.updated)
    since = max(known.committed_at, heartbeat.timings.get("first_step", 0.0))
    worked = node is not None and node.created_at <= since < at
    interval = at - since if worked else known.commit_interval
    return replace(known, step=step, committed_at=at, commit_interval=interval)


def last_step(heartbeat: Heartbeat, target: int | None) -> int | None:
    """Return the step at which the job ends: the *target* of the deployment file, else what the job reports."""
    return heartbeat.reported_target_steps if target is None else target


def unfinished_text(heartbeats: Sequence[Heartbeat], target: int | None) -> str:
    """Return how far a job is that runs, and what is saved of it; "" if its workers do not say that it runs."""
    if not heartbeats or any(heartbeat.phase is not Phase.RUN for heartbeat in heartbeats):
        return ""
    slowest, saved = min(heartbeats, key=lambda b: b.step or 0), common_step(heartbeats)
    last = last_step(slowest, target)
    steps = (
        "no step reported yet"
        if slowest.step is None
        else f"step {slowest.step}{f' of {last}' if last else ''}"
    )
    unit = "save" if slowest.committed_counted else "step"
    return f"{steps}, {'no checkpoint yet' if saved is None else f'newest checkpoint {unit} {saved}'}"


def seconds_remaining(heartbeats: tuple[Heartbeat, ...], target: int | None) -> float | None:
    """Return the remaining seconds of the slowest worker at its rate, None if unknown or beyond MAX_REST."""
    remaining: list[float] = []
    for heartbeat in heartbeats:
        last = last_step(heartbeat, target)
        if heartbeat.phase is not Phase.RUN or not heartbeat.rate or last is None or heartbeat.step is None:
            return None
        remaining.append(max(0, last - heartbeat.step) / heartbeat.rate)
    longest = max(remaining, default=None)
    # A job that has nearly stopped would give a number too long to read.
    return longest if longest is None or longest < MAX_REST else None


def _seconds_per_step(heartbeat: Heartbeat) -> float:
    """Return the seconds per step since the first step of this start, 0 if unknown."""
    if heartbeat.rate:
        return 1 / heartbeat.rate
    first, last = heartbeat.timings.get("first_step"), heartbeat.progress_at
    began = heartbeat.began_step if heartbeat.began_step is not None else heartbeat.resumed_from or 0
    if first is None or last is None or heartbeat.step is None or heartbeat.step <= began or last <= first:
        return 0.0
    return (last - first) / (heartbeat.step - began)
