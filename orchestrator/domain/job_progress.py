"""Learn a job's progress from its workers' reports, so that a deadline can be met."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import Heartbeat, Node

MAX_START = 3 * 3600.0
"""Seconds beyond which a start counts as an exception and not as a measure of the next one."""
MAX_REST = 1e9
"""Longest believable remaining time of a job, in seconds (three decades)."""


@dataclass(frozen=True)
class Progress:
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


def common_step(beats: Sequence[Heartbeat]) -> int | None:
    """
    Return the newest step that every worker has committed, None without one: only from there a gang resumes.

    Workers that save faster than they can upload may each have committed other steps.
    """
    if any(_names_only_the_newest(beat) for beat in beats):
        newest = [beat.resumed_from if beat.committed_step is None else beat.committed_step for beat in beats]
        numbers = [step for step in newest if step is not None]
        return min(numbers) if len(numbers) == len(beats) else None
    known = [{*beat.committed_steps, beat.resumed_from} - {None} for beat in beats]
    return (
        max((step for step in set.intersection(*known) if step is not None), default=None) if known else None
    )


def _names_only_the_newest(beat: Heartbeat) -> bool:
    return beat.committed_step not in {None, beat.resumed_from, *beat.committed_steps}


def with_heartbeats(known: Progress, beats: tuple[Heartbeat, ...], node: Node | None) -> Progress:
    """Return the progress updated by the reports of the newest TPU's workers."""
    if not beats:
        return known
    # The slowest worker counts, because a gang is as far as its last worker.
    last = min(beats, key=lambda beat: beat.step or 0)
    known = replace(known, seconds_per_step=_seconds_per_step(last) or known.seconds_per_step)
    first = last.timings.get("first_step")
    # Two clocks are involved, the machine's and Google's, so negative or absurd values are dropped.
    if first is not None and node is not None and 0 < first - node.created_at < MAX_START:
        known = replace(known, cold=first - node.created_at)
    step = common_step(beats) or 0
    if step < known.step and all(beat.phase is Phase.RUN for beat in beats):
        # Whatever an earlier machine reported, or saved and lost: the job resumes from here.
        return replace(known, step=step)
    return known if step <= known.step else _committed(known, last, step, node)


def _committed(known: Progress, beat: Heartbeat, step: int, node: Node | None) -> Progress:
    # A machine's clock may be wrong: no event is later than its report, or earlier than its TPU.
    at = min(beat.committed_at or beat.updated, beat.updated)
    since = max(known.committed_at, beat.timings.get("first_step", 0.0))
    worked = node is not None and node.created_at <= since < at
    interval = at - since if worked else known.commit_interval
    return replace(known, step=step, committed_at=at, commit_interval=interval)


def last_step(beat: Heartbeat, target: int | None) -> int | None:
    """Return the step at which the job ends: the *target* of the deployment file, else what the job reports."""
    return beat.reported_target_steps if target is None else target


def seconds_remaining(beats: tuple[Heartbeat, ...], target: int | None) -> float | None:
    """Return the remaining seconds of the slowest worker at its rate, None if unknown or beyond MAX_REST."""
    remaining: list[float] = []
    for beat in beats:
        last = last_step(beat, target)
        if beat.phase is not Phase.RUN or not beat.rate or last is None or beat.step is None:
            return None
        remaining.append(max(0, last - beat.step) / beat.rate)
    longest = max(remaining, default=None)
    # A job that has nearly stopped would give a number too long to read.
    return longest if longest is None or longest < MAX_REST else None


def _seconds_per_step(beat: Heartbeat) -> float:
    """Return the seconds per step since the first step of this start, 0 if unknown."""
    if beat.rate:
        return 1 / beat.rate
    first, last = beat.timings.get("first_step"), beat.progress_at
    began = beat.began_at if beat.began_at is not None else beat.resumed_from or 0
    if first is None or last is None or beat.step is None or beat.step <= began or last <= first:
        return 0.0
    return (last - first) / (beat.step - began)
