"""What is known of a job's progress, so that a deadline can be met: learned from the reports of its workers."""

from dataclasses import dataclass, replace

from orchestrator.domain.observation import Heartbeat, Node, Phase

LONGEST_START = 3 * 3600.0
"""Seconds beyond which a start is a fault and no measure of the next one."""
LONGEST_REST = 1e9
"""Seconds that a job may have left, three decades; more is no forecast."""


@dataclass(frozen=True)
class Progress:
    """
    Remember how far a job is and how fast. *step* is the newest that every worker has committed.

    *pace* is the seconds that a step takes, *cold* those from asking for the TPU to the job's first step,
    *loss* those between two commits; 0 while they are not known. *spot_refused_at* is when spot was last
    refused for want of capacity.
    """

    step: int = 0
    pace: float = 0.0
    cold: float = 0.0
    loss: float = 0.0
    committed_at: float = 0.0
    spot_refused_at: float = 0.0


def with_reports(known: Progress, beats: tuple[Heartbeat, ...], node: Node | None) -> Progress:
    """Return the progress with what the workers of the newest TPU report."""
    if not beats:
        return known
    # The slowest worker: a gang is as far as the last of it.
    last = min(beats, key=lambda beat: beat.step or 0)
    known = replace(known, pace=_pace(last) or known.pace)
    first = last.timings.get("first_step")
    # By two clocks, the machine's and Google's: what is negative or absurd is left out.
    if first is not None and node is not None and 0 < first - node.created_at < LONGEST_START:
        known = replace(known, cold=first - node.created_at)
    # What the slowest has committed: a gang can resume from nothing newer.
    step = min(beat.committed_step or beat.resumed_from or 0 for beat in beats)
    if step < known.step and all(beat.phase is Phase.RUN for beat in beats):
        # Whatever an earlier machine has said, or has saved and lost: this is what the job goes on from.
        return replace(known, step=step)
    return known if step <= known.step else _committed(known, last, step, node)


def _committed(known: Progress, beat: Heartbeat, step: int, node: Node | None) -> Progress:
    # A machine's own clock may be wrong, or lie: nothing is later than its report, or earlier than its TPU.
    at = min(beat.committed_at or beat.updated, beat.updated)
    since = max(known.committed_at, beat.timings.get("first_step", 0.0))
    worked = node is not None and node.created_at <= since < at
    return replace(known, step=step, committed_at=at, loss=at - since if worked else known.loss)


def last_step(beat: Heartbeat, target: int | None) -> int | None:
    """Return the step at which the job ends: the *target* of the deployment file, else what the job says."""
    return beat.total_steps if target is None else target


def seconds_remaining(beats: tuple[Heartbeat, ...], target: int | None) -> float | None:
    """Return how long the slowest worker trains on at its rate, None where that is not known, or is no time."""
    remaining: list[float] = []
    for beat in beats:
        last = last_step(beat, target)
        if beat.phase is not Phase.RUN or not beat.rate or last is None or beat.step is None:
            return None
        remaining.append(max(0, last - beat.step) / beat.rate)
    longest = max(remaining, default=None)
    # A job that has nearly stopped would fill the line with a number that nobody can read.
    return longest if longest is None or longest < LONGEST_REST else None


def _pace(beat: Heartbeat) -> float:
    """Return the seconds per step since the first step that this start of the job has reported, 0 if unknown."""
    if beat.rate:
        return 1 / beat.rate
    first, last = beat.timings.get("first_step"), beat.progress_at
    began = beat.began_at if beat.began_at is not None else beat.resumed_from or 0
    if first is None or last is None or beat.step is None or beat.step <= began or last <= first:
        return 0.0
    return (last - first) / (beat.step - began)
