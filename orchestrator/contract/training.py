"""Say when a machine has trained: a heartbeat names the attempts of the job on it that are over."""

from __future__ import annotations

import contextlib
from typing import Any, List, Mapping, NamedTuple, Optional

MAX_TRAININGS = 32
"""Trainings that a heartbeat names; the oldest ones are joined."""


class Training(NamedTuple):
    """
    The training of one attempt, from its first to its last new step.

    *began* and *until* are in seconds since the epoch by the machine's clock; it went from step *start*, of its
    checkpoint, to step *reached*.
    """

    attempt: int
    began: float
    until: float
    start: int
    reached: int


def training_of(
    attempt: int, began: Optional[float], until: Optional[float], start: Optional[int], reached: Optional[int],
    earlier: List[Training],
) -> Optional[Training]:  # fmt: skip
    """Return the training of an attempt; None if it has made no step since those before it, *earlier*."""
    if began is None or until is None or reached is None:
        return None
    # The time of a first step stays in the report until the next attempt makes one.
    if earlier and began <= earlier[-1].began:
        return None
    return Training(attempt, began, max(began, until), start or 0, reached)


def stored_training(value: object) -> Training:
    """Return one training from the list in a heartbeat. Raise ValueError if it is none."""
    if not isinstance(value, list) or len(value) != len(Training._fields):
        raise ValueError("trained has an entry that is no training")
    for one in value:
        if isinstance(one, bool) or not isinstance(one, (int, float)) or not 0 <= one < 1e15:
            raise ValueError("trained has a number that cannot be")
    attempt, began, until, start, reached = value
    return Training(int(attempt), float(began), float(until), int(start), int(reached))


def trainings(body: Mapping[str, Any]) -> List[Training]:
    """Return all trainings that a stored heartbeat tells of, the last one included; foreign values are left out."""
    found: List[Training] = []
    # Up to the first odd value: what comes after it may be of the same program.
    with contextlib.suppress(ValueError, TypeError, AttributeError):
        found.extend(map(stored_training, body.get("trained") or []))
        times = body.get("timings") or {}
        last = training_of(
            body.get("attempt") or 0, times.get("first_step"), body.get("progress_at"),
            body.get("resumed_from"), body.get("step"), found,
        )  # fmt: skip
        if last is not None:
            found.append(stored_training(list(last)))
    return found


def joined(found: List[Training]) -> List[Training]:
    """Return at most MAX_TRAININGS of them, the oldest ones as one."""
    while len(found) > MAX_TRAININGS:
        one, other = found[:2]
        found = [other._replace(began=one.began, start=one.start), *found[2:]]
    return found
