"""
Jobs of a fleet and their tasks: the state of each, and which of them Slurm's queue must have or lose.

Slurm owns the queue, its order and requeueing; the bucket is the truth about what was submitted and has ended.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.contract.bucket.object_names import JOBS, TASKS
from orchestrator.domain.spec import JobSpec

MAX_TASKS = 10_000


class TaskState(Enum):
    """State of a task, in the order of columns; the values are for people, and part of names in the bucket."""

    DONE = "done"
    RUNNING = "running"
    WAITING = "waiting"
    FAILED = "failed"
    UNCOMMITTED = "uncommitted"
    CANCELLED = "cancelled"


GOOD_ENDS = (TaskState.DONE, TaskState.UNCOMMITTED)
"""Ends that count as success; slurm.sh reports the same ones to Slurm by exit status."""
END_STATES = (*GOOD_ENDS, TaskState.FAILED)
"""
What a machine may say of an ended task.

Of two marks the state that stands first here counts: a start that was fenced too late may have written the other.
"""
OPEN = (TaskState.RUNNING, TaskState.WAITING)
"""States from which a task goes on."""


@dataclass(frozen=True)
class Submission:
    """
    One job of a fleet as it was submitted; *parameters* has those of each task.

    *script* is what Slurm runs, *bundle* the sha256 of the code. *cancelled* are task numbers. *collect*
    names the files whose values become columns of the results table, *into* is the file to write the table
    to. *after* maps the jobs to wait for to `ok` or `any`. While *held*, none of its tasks starts. *slices*
    is the smallest and the largest number of nodes for each task. *user* is the login that submitted it,
    *priority* one of the fleet's priorities.
    """

    name: str
    parameters: tuple[Mapping[str, str], ...]
    job: JobSpec
    bundle: str
    script: str
    submitted_at: float
    cancelled: tuple[int, ...] = ()
    collect: tuple[str, ...] = ()
    into: str = ""
    after: Mapping[str, str] = field(default_factory=dict)
    held: bool = False
    slices: tuple[int, int] = (1, 1)
    user: str = ""
    priority: str = ""


def task_folder(job: str, number: int) -> str:
    """Return the folder of a task in the bucket, with a slash at the end."""
    return f"{JOBS}{job}/{TASKS}{number}/"


def grid(matrix: Mapping[str, Sequence[str]]) -> tuple[Mapping[str, str], ...]:
    """Return the parameters of each task: all combinations, the last parameter varying fastest."""
    keys = list(matrix)
    return tuple(
        dict(zip(keys, values, strict=True)) for values in itertools.product(*(matrix[k] for k in keys))
    )


@dataclass(frozen=True, order=True)
class After:
    """A dependency in Slurm's words: *how*, such as `afterok`, and the id of an *array*."""

    how: str
    array: str

    def __str__(self) -> str:
        return f"{self.how}:{self.array}"


@dataclass(frozen=True)
class SlurmTask:
    """
    One task as Slurm's queue shows it, where it waits or runs; *node* is empty while the task waits.

    *array* is the id of its Slurm array, which stands for all tasks of the array. *account* and *priority*
    are empty if Slurm has no database.
    """

    job: str
    number: int
    state: str
    array: str
    restarts: int = 0
    node: str = ""
    held: bool = False
    after: tuple[After, ...] = ()
    account: str = ""
    priority: str = ""

    @property
    def slurm_id(self) -> str:
        """Return what Slurm calls this one task."""
        return f"{self.array}_{self.number}"


def unfinished(submission: Submission, ended: Collection[int]) -> tuple[int, ...]:
    """Return the numbers of the tasks that must be in Slurm's queue."""
    over = {*ended, *submission.cancelled}
    return tuple(number for number in range(len(submission.parameters)) if number not in over)


def again_of(
    submission: Submission, ended: Mapping[int, TaskState], asked: Collection[int]
) -> tuple[int, ...]:
    """Return those of the *asked* tasks that have failed or were cancelled, and so may run again."""
    return tuple(
        number for number in sorted(asked)
        if ended.get(number) is TaskState.FAILED or (number in submission.cancelled and number not in ended)
    )  # fmt: skip


def cancelled(submissions: Iterable[Submission], slurm_tasks: Iterable[SlurmTask]) -> tuple[SlurmTask, ...]:
    """Return the tasks that wait or run in Slurm although they were cancelled."""
    numbers = {submission.name: submission.cancelled for submission in submissions}
    return tuple(one for one in slurm_tasks if one.number in numbers.get(one.job, ()))


def waiting_copies(
    ended: Mapping[str, Collection[int]], slurm_tasks: Iterable[SlurmTask]
) -> tuple[SlurmTask, ...]:
    """
    Return the tasks that wait in Slurm although they have ended.

    Slurm queues a task again when it loses sight of its machine, which may go on to the task's end; a copy that
    is held would wait for ever. One that runs finds the end by itself.
    """
    return tuple(
        one for one in slurm_tasks if one.state == "PENDING" and one.number in ended.get(one.job, ())
    )


@dataclass(frozen=True)
class TaskRow:
    """One task as `fleet queue` shows it."""

    number: int
    state: TaskState
    parameters: Mapping[str, str]
    node: str = ""
    restarts: int = 0


@dataclass(frozen=True)
class JobRow:
    """Summarise one job of the queue."""

    name: str
    submitted_at: float
    tasks: tuple[TaskRow, ...] = field(default=())

    def count(self, state: TaskState) -> int:
        """Return how many tasks are in *state*."""
        return sum(task.state is state for task in self.tasks)


def rows(
    submissions: Iterable[Submission],
    ended: Mapping[str, Mapping[int, TaskState]],
    slurm_tasks: Iterable[SlurmTask],
) -> tuple[JobRow, ...]:
    """
    Return the jobs, newest last. The end marks in the bucket decide, then cancellations, then the queue.

    A task in neither is waiting: the fleet's watch submits it again in its next pass.
    """
    in_queue = {(one.job, one.number): one for one in slurm_tasks}

    def row(submission: Submission, number: int, parameters: Mapping[str, str]) -> TaskRow:
        end = ended.get(submission.name, {}).get(number)
        held = in_queue.get((submission.name, number), SlurmTask(submission.name, number, "PENDING", ""))
        running = held.state in {"RUNNING", "COMPLETING"}
        underway = TaskState.RUNNING if running else TaskState.WAITING
        state = end or (TaskState.CANCELLED if number in submission.cancelled else underway)
        node = held.node if state is TaskState.RUNNING else ""
        return TaskRow(number, state, parameters, node, held.restarts)

    found = [
        JobRow(o.name, o.submitted_at, tuple(row(o, n, p) for n, p in enumerate(o.parameters)))
        for o in submissions
    ]
    return tuple(sorted(found, key=lambda job: (job.submitted_at, job.name)))
