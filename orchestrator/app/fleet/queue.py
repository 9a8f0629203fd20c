"""Read a fleet's queue: its jobs from the bucket, and what Slurm says of their tasks."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.fleet.sessions import Fleet
from orchestrator.domain.ports import Store
from orchestrator.engine.fleet import job_store, user_store
from orchestrator.engine.fleet.job_store import ReadSubmissions
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.planning.fleet.gate import Gate, gate
from orchestrator.planning.fleet.multi_slice import Shortage, multi_slice_tasks, shortage
from orchestrator.planning.fleet.size import FleetNode, FleetNodePhase, SlurmNode
from orchestrator.planning.fleet.tasks import JobRow, SlurmTask, Submission, rows, task_folder
from orchestrator.planning.fleet.users import FleetUsers

NO_JOB = "see: tpuctl fleet queue"


@dataclass(frozen=True)
class Queue:
    """
    The jobs; *message* is why Slurm did not answer: what runs is not known then.

    *unread* are jobs that cannot be read, each with its error. *lacks* says of jobs of several slices what nodes
    they wait for.
    """

    jobs: tuple[JobRow, ...]
    message: str
    gates: Mapping[str, Gate]
    submissions: Mapping[str, Submission]
    users: FleetUsers
    unread: Mapping[str, TpuctlError] = field(default_factory=dict)
    lacks: Mapping[str, Shortage] = field(default_factory=dict)


@dataclass(frozen=True)
class SlurmAnswer:
    """What Slurm says: tasks and, for jobs of several slices, nodes; *message* is why it did not answer."""

    slurm_tasks: tuple[SlurmTask, ...] = ()
    nodes: Mapping[str, SlurmNode] = field(default_factory=dict)
    message: str = ""


def ask_slurm(fleet: Fleet, jobs: Sequence[Submission]) -> SlurmAnswer:
    """Return what Slurm says now, as far as these jobs need it."""
    try:
        slurm = fleet.slurm()
        slurm_tasks = slurm.queue()
        multi_slice = any(submission.slices[0] > 1 for submission in jobs)
        return SlurmAnswer(slurm_tasks, slurm.node_states() if multi_slice else {})
    except TpuctlError as error:
        return SlurmAnswer(message=error.message)


def narrowed(store: Store, read: ReadSubmissions, name: str) -> ReadSubmissions:
    """Return the job of that name and those it comes after. Raise UsageError if there is none, or its error."""
    own = next((one for one in read.jobs if one.name == name), None) or submitted_job(store, name)
    names = (name, *own.after)
    unread = {one: error for one, error in read.unread.items() if one in names}
    return ReadSubmissions(tuple(one for one in read.jobs if one.name in names), unread)


def queue(store: Store, read: ReadSubmissions, name: str | None, answer: SlurmAnswer) -> Queue:
    """
    Return all jobs that were *read*, or the one named *name*.

    The ends of tasks are read here, after Slurm's *answer*: a task that ends between the two is in one of them.
    """
    found, slurm_tasks = read.jobs, answer.slurm_tasks
    known = {submission.name: submission for submission in found}
    submissions = found if name is None else (known[name],)
    ended = job_store.all_ended(store, found)
    fleet_users = user_store.read_users(store)
    owing = user_store.over_budget(store)
    # By what Slurm says alone: who has brought them up is another computer, perhaps.
    there = [FleetNode(node, FleetNodePhase.UP, observed) for node, observed in answer.nodes.items()]
    tasks = multi_slice_tasks(found, ended, slurm_tasks, owing) if there else ()
    lacks = {task.job: lack for task in tasks if (lack := shortage([task], there)) is not None}
    gates = {submission.name: gate(submission, known, ended, owing) for submission in submissions}
    return Queue(
        rows(submissions, ended, slurm_tasks), answer.message, gates, known, fleet_users, read.unread, lacks
    )


def fleet_to_read(choice: Choice, reporter: Reporter) -> Fleet:
    """Return the fleet for a command that does not change its machines."""
    return Fleet(choice, reporter, lambda _: Reporter(), only_observes=True)


def task_store(fleet: Fleet, job: str, number: int) -> Store:
    """Return the task's folder of the bucket."""
    return fleet.head.store.below(task_folder(job, number))


def submitted_job(store: Store, name: str) -> Submission:
    """Return a job as submitted. Raise UsageError if there is none of that name."""
    submission = job_store.read(store, name)
    if submission is None:
        raise UsageError(
            f"there is no job {name!r}", hint=NO_JOB, changed="nothing was changed", code="TPU-137"
        )
    return submission


def job_and_task(text: str) -> tuple[str, int | None]:
    """Parse JOB or JOB/3. Raise UsageError."""
    found = re.fullmatch(r"([a-z][-a-z0-9]*)(?:/(\d{1,5}))?", text)
    if found is None:
        raise UsageError(
            f"{text!r} names no job", hint="write JOB, or JOB/3 for one of its tasks",
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    return found[1], None if found[2] is None else int(found[2])


def task_numbers(submission: Submission, number: int | None) -> Sequence[int]:
    """Return all tasks of a job, or the given one. Raise UsageError if it does not exist."""
    if number is None:
        return range(len(submission.parameters))
    if number >= len(submission.parameters):
        raise UsageError(
            f"{submission.name} has the tasks 0 to {len(submission.parameters) - 1}", hint=NO_JOB,
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    return (number,)
