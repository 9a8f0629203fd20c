"""
May the tasks of a job begin? Decided from the bucket; Slurm is told so that it holds without us too.

Pure. Where all that is missing is the end of another job, Slurm waits for that by itself: nobody has to watch.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from orchestrator.planning.fleet import Order, Queued, unfinished

GOOD_ENDS = frozenset({"done", "unclaimed"})
"""Ends with which a task has done its work; Slurm is told of the same ones by its exit status."""


class Hold(Enum):
    """Name why no task of a job begins."""

    NONE = ""
    ASKED = "held"
    BUDGET = "budget"
    AFTER = "after"


@dataclass(frozen=True)
class Gate:
    """
    Say whether tasks of a job may begin: not with a *hold*, and only when the jobs in *waits* are over.

    *cause* is the job whose failure closes it, or the user whose budget does.
    """

    hold: Hold = Hold.NONE
    cause: str = ""
    waits: Mapping[str, str] = field(default_factory=dict)


OPEN = Gate()


def gate(
    order: Order, orders: Mapping[str, Order], ended: Mapping[str, Mapping[int, str]],
    over_budget: Collection[str] = (),
) -> Gate:  # fmt: skip
    """
    Return the gate of one job; *orders* and *ended* have also those that it comes after.

    *over_budget* are the users who have spent theirs.
    """
    if order.held:
        return Gate(Hold.ASKED)
    if order.user in over_budget:
        return Gate(Hold.BUDGET, order.user)
    waits = {}
    for name, how in order.after.items():
        earlier, ends = orders.get(name), ended.get(name, {})
        if earlier is None:
            return Gate(Hold.AFTER, name)
        lost = {number for number in earlier.cancelled if number not in ends}
        if how == "ok" and (lost or not GOOD_ENDS.issuperset(ends.values())):
            return Gate(Hold.AFTER, name)
        if unfinished(earlier, ends):
            waits[name] = how
    return Gate(waits=waits)


def after_words(held: Gate, queued: Iterable[Queued]) -> tuple[str, ...]:
    """Return what Slurm has to let a job wait for, as `afterok:7`; empty when its queue has none of it."""
    arrays = {(one.job, one.array) for one in queued}
    return tuple(sorted(f"after{held.waits[job]}:{array}" for job, array in arrays if job in held.waits))


@dataclass(frozen=True)
class Correction:
    """Say what has to change in Slurm for its arrays *arrays*; with the verb `after` they wait for *after*."""

    verb: Literal["hold", "release", "after"]
    arrays: tuple[str, ...]
    after: tuple[str, ...] = ()


def strays(accounts: Mapping[str, tuple[str, str]], queued: Iterable[Queued]) -> tuple[Queued, ...]:
    """Return the waiting tasks that are under another account or priority than their jobs have in *accounts*."""
    waiting = (one for one in queued if one.state == "PENDING" and one.job in accounts)
    return tuple(one for one in waiting if (one.account, one.priority) != accounts[one.job])


def corrections(gates: Mapping[str, Gate], queued: Collection[Queued]) -> tuple[Correction, ...]:
    """
    Return how Slurm's queue differs from what the bucket says; nothing when it does not.

    What Slurm itself has held, after a start that failed, is released with the rest.
    """
    waiting = [one for one in queued if one.state == "PENDING" and one.job in gates]
    hold, release, after = [], [], []
    for job in dict.fromkeys(one.job for one in waiting):
        wanted, mine = gates[job], [one for one in waiting if one.job == job]
        words = after_words(wanted, queued)
        # Slurm forgets an array that is over: until the bucket has its ends, the job is held instead.
        closed = wanted.hold is not Hold.NONE or bool(wanted.waits and not words)
        hold += [one.array for one in mine if closed and not one.held]
        release += [one.array for one in mine if not closed and one.held]
        if not closed:
            wrong = tuple(dict.fromkeys(one.array for one in mine if one.after != words))
            after += [Correction("after", wrong, words)] if wrong else []
    # What is to be waited for comes before the release, or a task would begin between the two.
    return (
        *([Correction("hold", tuple(dict.fromkeys(hold)))] if hold else []),
        *after,
        *([Correction("release", tuple(dict.fromkeys(release)))] if release else []),
    )
