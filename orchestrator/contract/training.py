"""Say when a machine has trained: a heartbeat names the attempts of the job on it that are over."""

from __future__ import annotations

import contextlib
from typing import Any, Dict, List, Mapping, NamedTuple, Optional

MAX_TRAININGS = 32
"""Trainings that a heartbeat names; the oldest ones are joined."""


class Training(NamedTuple):
    """
    The training of one attempt, from its first to its last new step.

    *began_at* and *until* are in seconds since the epoch by the machine's clock; it went from
    *from_step*, as `trained_from` has it, to *to_step*.
    """

    attempt: int
    began_at: float
    until: float
    from_step: int
    to_step: int


def trained_from(from_step: Optional[int], resumed_from: Optional[int], began_step: Optional[int]) -> int:
    """
    Return the step from which an attempt trained: that of its checkpoint, a lower one if it did not read it.

    An older agent reports no *from_step*; then it follows from the first step that the job reported.
    """
    resumed = resumed_from or 0
    if from_step is not None:
        return from_step
    return resumed if began_step is None or began_step >= resumed else max(0, began_step - 1)


def training_of(
    attempt: int, began_at: Optional[float], until: Optional[float], from_step: Optional[int],
    to_step: Optional[int], earlier: List[Training],
) -> Optional[Training]:  # fmt: skip
    """Return the training of an attempt; None if it has made no step since those before it, *earlier*."""
    if began_at is None or until is None or to_step is None:
        return None
    # The time of a first step stays in the report until the next attempt makes one.
    if earlier and began_at <= earlier[-1].began_at:
        return None
    return Training(attempt, began_at, max(began_at, until), from_step or 0, to_step)


def stored_training(value: object) -> Training:
    """Return one training from the list in a heartbeat. Raise ValueError if it is none."""
    if not isinstance(value, list) or len(value) != len(Training._fields):
        raise ValueError("trained has an entry that is no training")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, (int, float)) or not 0 <= one < 1e15:
            raise ValueError("trained has a number that cannot be")
    attempt, began_at, until, from_step, to_step = value
    return Training(int(attempt), float(began_at), float(until), int(from_step), int(to_step))


def trainings(body: Mapping[str, Any]) -> List[Training]:
    """Return all trainings that a stored heartbeat tells of, the last one included; foreign values are left out."""
    found: List[Training] = []
    # Up to the first odd value: what comes after it may be of the same program.
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        found.extend(map(stored_training, body.get("trained") or []))
        times = body.get("timings") or {}
        last = training_of(
            body.get("attempt") or 0, times.get("first_step"), body.get("progress_at"),
            trained_from(body.get("from_step"), body.get("resumed_from"), body.get("began_step")),
            body.get("step"), found,
        )  # fmt: skip
        if last is not None:
            found.append(stored_training(list(last)))
    return found


def first_timings(body: Mapping[str, Any]) -> Dict[str, float]:
    """
    Return the times of the first attempt on a machine that made a step, from a stored heartbeat.

    {} if there is none yet, or if an earlier agent has overwritten them; foreign values are no times.
    """
    times = body.get("first_timings") or ({} if body.get("trained") else body.get("timings"))
    if not isinstance(times, dict) or "first_step" not in times:
        return {}
    numbers = (isinstance(at, (int, float)) and not isinstance(at, bool) for at in times.values())
    return dict(times) if all(numbers) and all(0 <= at < 1e15 for at in times.values()) else {}


def joined(found: List[Training]) -> List[Training]:
    """Return at most MAX_TRAININGS of them, the oldest ones as one."""
    while len(found) > MAX_TRAININGS:
        one, other = found[:2]
        found = [other._replace(began_at=one.began_at, from_step=one.from_step), *found[2:]]
    return found
