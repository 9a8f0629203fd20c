"""
The policies that tpuctl's own, `orchestrator.planning.tpu.deadline`, is compared with, over the same situations.

- greedy: spot as long as it is there, else wait; on demand to the end when the slack is nearly used up.
- uniform: Uniform Progress (Can't Be Late, NSDI 2024): never behind a straight line from nothing to all.

All share one safety net: without a node, and with less slack than a sudden end costs, it is on demand.
"""

from enum import Enum

from orchestrator.planning.tpu import deadline
from orchestrator.planning.tpu.deadline import Mode, ModeChoice, Situation


class DeadlinePolicy(Enum):
    """Name the ways to choose; THRIFTY is ours."""

    GREEDY = "greedy"
    UNIFORM = "uniform"
    THRIFTY = "thrifty"


def choose(policy: DeadlinePolicy, s: Situation) -> ModeChoice:
    """Return what the job should run on from now on."""
    if policy is DeadlinePolicy.THRIFTY or s.remaining <= 0:
        return deadline.choose(s)
    if s.mode is Mode.SPOT:
        late = s.starting and s.slack < s.cold + s.commit_interval
        return ModeChoice(Mode.ON_DEMAND) if late else ModeChoice(Mode.SPOT, s.zone)
    if s.mode is Mode.ON_DEMAND:
        ahead = policy is DeadlinePolicy.UNIFORM and s.slack >= s.change + s.unsaved
        ahead = ahead and s.done >= _line(s, s.now + 2 * s.cold)
        return (_first(s) if ahead else None) or ModeChoice(Mode.ON_DEMAND, s.zone)
    if s.slack < s.change:
        return ModeChoice(Mode.ON_DEMAND)
    behind = policy is DeadlinePolicy.UNIFORM and s.done < _line(s, s.now)
    return _first(s) or ModeChoice(Mode.ON_DEMAND if behind else Mode.WAIT)


def _first(s: Situation) -> ModeChoice | None:
    """Return the first offer that may be up."""
    found = next((offer for offer in s.offers if offer.up is not False), None)
    return None if found is None else ModeChoice(Mode.SPOT, found.zone)


def _line(s: Situation, at: float) -> float:
    """Return the progress that a straight line from begin to deadline has at a time."""
    span = max(1.0, s.deadline - s.began)
    return s.work * min(1.0, max(0.0, (at - s.began) / span))
