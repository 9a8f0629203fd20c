"""
Decide from the bucket whether the tasks of a job may start, and what Slurm must hold until then.

Pure. If a job only waits for the end of another one, Slurm gets a dependency and releases it by itself, also
while no watcher runs.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from orchestrator.planning.fleet.tasks import GOOD_ENDS, After, SlurmTask, Submission, TaskState, unfinished


class Hold(Enum):
    """Why no task of a job may start."""

    NONE = ""
    ASKED = "held"
    OVER_BUDGET = "over-budget"
    AFTER = "after"


@dataclass(frozen=True)
class Gate:
    """
    Return whether tasks of a job may start: not while it has a *hold*, and not before jobs in *waits* have ended.

    *cause* is the failed job, or the user over budget, that holds it.
    """

    hold: Hold = Hold.NONE
    cause: str = ""
    waits: Mapping[str, str] = field(default_factory=dict)


OPEN = Gate()


def gate(
    submission: Submission, submissions: Mapping[str, Submission], ended: Mapping[str, Mapping[int, TaskState]],
    over_budget: Collection[str] = (),
) -> Gate:  # fmt: skip
    """
    Return the gate of one job; *submissions* and *ended* include the jobs that it waits for.

    *over_budget* are the users whose budget is spent.
    """
    if submission.held:
        return Gate(Hold.ASKED)
    if submission.user in over_budget:
        return Gate(Hold.OVER_BUDGET, submission.user)
    waits = {}
    for name, how in submission.after.items():
        earlier, ends = submissions.get(name), ended.get(name, {})
        if earlier is None:
            return Gate(Hold.AFTER, name)
        lost = {number for number in earlier.cancelled if number not in ends}
        if how == "ok" and (lost or not set(GOOD_ENDS).issuperset(ends.values())):
            return Gate(Hold.AFTER, name)
        if unfinished(earlier, ends):
            waits[name] = how
    return Gate(waits=waits)


def dependencies(held: Gate, slurm_tasks: Iterable[SlurmTask]) -> tuple[After, ...]:
    """Return Slurm's dependencies for a job; empty if its queue has none of the arrays."""
    arrays = {(one.job, one.array) for one in slurm_tasks}
    return tuple(
        sorted(After(f"after{held.waits[job]}", array) for job, array in arrays if job in held.waits)
    )


@dataclass(frozen=True)
class Correction:
    """A correction of Slurm's *arrays*; with the verb `after` they get the dependencies *after*."""

    verb: Literal["hold", "release", "after"]
    arrays: tuple[str, ...]
    after: tuple[After, ...] = ()


def under_wrong_account(
    accounts: Mapping[str, tuple[str, str]], slurm_tasks: Iterable[SlurmTask]
) -> tuple[SlurmTask, ...]:
    """Return the waiting tasks whose account or priority differs from that of their job in *accounts*."""
    waiting = (one for one in slurm_tasks if one.state == "PENDING" and one.job in accounts)
    return tuple(one for one in waiting if (one.account, one.priority) != accounts[one.job])


def corrections(gates: Mapping[str, Gate], slurm_tasks: Collection[SlurmTask]) -> tuple[Correction, ...]:
    """
    Return what must change in Slurm's queue to match the bucket; empty if it matches.

    Tasks that Slurm itself has held, after a failed start, are released too.
    """
    waiting = [one for one in slurm_tasks if one.state == "PENDING" and one.job in gates]
    hold, release, after = [], [], []
    for job in dict.fromkeys(one.job for one in waiting):
        wanted, mine = gates[job], [one for one in waiting if one.job == job]
        earlier = dependencies(wanted, slurm_tasks)
        # Slurm forgets an array that has ended; until its ends are in the bucket, the job is held instead.
        closed = wanted.hold is not Hold.NONE or bool(wanted.waits and not earlier)
        hold += [one.array for one in mine if closed and not one.held]
        release += [one.array for one in mine if not closed and one.held]
        if not closed:
            wrong = tuple(dict.fromkeys(one.array for one in mine if one.after != earlier))
            after += [Correction("after", wrong, earlier)] if wrong else []
    # The dependency goes before the release, or a task could start between the two.
    return (
        *([Correction("hold", tuple(dict.fromkeys(hold)))] if hold else []),
        *after,
        *([Correction("release", tuple(dict.fromkeys(release)))] if release else []),
    )
