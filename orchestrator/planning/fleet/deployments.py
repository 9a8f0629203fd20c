"""
Map a fleet to ordinary deployments: one with bucket and VM, and one for each node, in a folder of that bucket.

Pure. Slurm owns the queue, its order and requeueing; this module decides what the deployments are, and which
tasks are missing from Slurm's queue.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.contract.bucket.object_names import JOBS, NODES, SLURM, TASKS
from orchestrator.domain.spec import BucketSpec, CheckpointSpec, FleetSpec, JobSpec, Spec
from orchestrator.domain.text.units import Duration

OLDEST_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
"""Image of the fleet's VM, as old as the TPUs' (docs/fleet.md), so that programs built there run on all nodes."""
PORT = 6817
"""Slurm's default port for the controller; the nodes' ports follow it."""
MOST_TASKS = 10_000
FOR_EVER = Duration(10 * 365 * 86400)
RESTARTS = 1000
"""Failed starts in a row after which a node's Slurm is given up; it also fails while the controller is away."""


@dataclass(frozen=True)
class Controller:
    """Say where a fleet's Slurm controller is, and which Slurm archive (`slurm-SHA256.tar.gz`) all machines run."""

    address: str
    port: int
    archive: str


def head_of(spec: Spec) -> Spec:
    """Return the deployment that has the fleet's bucket and VM."""
    assert spec.vm != "none"  # noqa: S101 (a rule of the file)
    return replace(spec, vm=replace(spec.vm, image=spec.vm.image or OLDEST_IMAGE))


def node_names(spec: Spec) -> tuple[str, ...]:
    """Return the names of the nodes, used for their deployments and in Slurm."""
    return tuple(f"{spec.name}-{number:03d}" for number in range(1, nodes(spec) + 1))


def nodes(spec: Spec) -> int:
    """Return the number of nodes in the fleet; 0 for any other deployment."""
    return (spec.fleet or FleetSpec(0)).nodes


def node_spec(spec: Spec, name: str, bucket: str, controller: Controller) -> Spec:
    """Return the deployment of one node, whose job is Slurm's node daemon."""
    variables = {
        "FLEET_NAME": spec.name, "FLEET_NODE": name, "FLEET_NODES": str(nodes(spec)),
        # No address: a recreated VM has another one, so nodes read it from the bucket.
        "FLEET_PORT": str(controller.port), "FLEET_ENGINE": controller.archive,
    }  # fmt: skip
    job = JobSpec(
        "bash ./slurm.sh node", data={"engine": f"gs://{bucket}/{SLURM.rstrip('/')}"}, env=variables,
        failures=RESTARTS, warm_start=False,
        # Tasks have checkpoints of their own; the node itself has nothing to resume.
        checkpoint=CheckpointSpec(format="outputs"),
    )  # fmt: skip
    return replace(
        spec, name=name, vm="none", fleet=None, job=job,
        bucket=BucketSpec(name=bucket, adopt=True, prefix=f"{NODES}{name}"),
        # The node's job prints nothing while tasks run, which must not count as a stall.
        watch=replace(spec.watch, stall=FOR_EVER, on_vm=False),
    )  # fmt: skip


def fleet_of(spec: Spec) -> str:
    """Return the name of the fleet that a deployment belongs to, empty if none."""
    if spec.fleet is not None:
        return spec.name
    return spec.name.rpartition("-")[0] if spec.bucket.prefix == f"{NODES}{spec.name}" else ""


@dataclass(frozen=True)
class Submission:
    """
    One job of a fleet as it was submitted; *parameters* has the variables of each task.

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


def task_spec(spec: Spec, bucket: str, name: str, job: JobSpec) -> Spec:
    """Return the deployment that stands for the tasks of a job; each task has its own folder."""
    place = BucketSpec(name=bucket, adopt=True, prefix=f"{JOBS}{name}/tasks/0")
    return replace(spec, vm="none", fleet=None, job=job, bucket=place)


def task_folder(job: str, number: int) -> str:
    """Return the folder of a task in the bucket, with a slash at the end."""
    return f"{JOBS}{job}/{TASKS}{number}/"


def grid(matrix: Mapping[str, Sequence[str]]) -> tuple[Mapping[str, str], ...]:
    """Return the variables of each task: all combinations, the last parameter varying fastest."""
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
class Queued:
    """
    One task as Slurm's queue shows it; *node* is empty while the task waits.

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


def again_of(submission: Submission, ended: Mapping[int, str], asked: Collection[int]) -> tuple[int, ...]:
    """Return those of the *asked* tasks that have failed or were cancelled, and so may run again."""
    return tuple(
        number for number in sorted(asked)
        if ended.get(number) == "failed" or (number in submission.cancelled and number not in ended)
    )  # fmt: skip


def cancelled(submissions: Iterable[Submission], queued: Iterable[Queued]) -> tuple[Queued, ...]:
    """Return the tasks that wait or run in Slurm although they were cancelled."""
    numbers = {submission.name: submission.cancelled for submission in submissions}
    return tuple(one for one in queued if one.number in numbers.get(one.job, ()))


def waiting_copies(ended: Mapping[str, Collection[int]], queued: Iterable[Queued]) -> tuple[Queued, ...]:
    """
    Return the tasks that wait in Slurm although they have ended.

    Slurm queues a task again when it loses sight of its machine, which may go on to the task's end; a copy that
    is held would wait for ever. One that runs finds the end by itself.
    """
    return tuple(one for one in queued if one.state == "PENDING" and one.number in ended.get(one.job, ()))


@dataclass(frozen=True)
class TaskRow:
    """One task: waiting, running, done, failed, unclaimed or cancelled."""

    number: int
    state: str
    parameters: Mapping[str, str]
    node: str = ""
    restarts: int = 0


@dataclass(frozen=True)
class JobRow:
    """Summarise one job of the queue."""

    name: str
    submitted_at: float
    tasks: tuple[TaskRow, ...] = field(default=())

    def count(self, state: str) -> int:
        """Return how many tasks are in *state*."""
        return sum(task.state == state for task in self.tasks)


def rows(
    submissions: Iterable[Submission], ended: Mapping[str, Mapping[int, str]], queued: Iterable[Queued]
) -> tuple[JobRow, ...]:
    """
    Return the jobs, newest last. The end marks in the bucket decide, then cancellations, then the queue.

    A task in neither is waiting: the fleet's watch submits it again in its next pass.
    """
    in_queue = {(one.job, one.number): one for one in queued}

    def row(submission: Submission, number: int, parameters: Mapping[str, str]) -> TaskRow:
        phase = ended.get(submission.name, {}).get(number)
        held = in_queue.get((submission.name, number), Queued(submission.name, number, "PENDING", ""))
        running = held.state in {"RUNNING", "COMPLETING"}
        state = phase or (
            "cancelled" if number in submission.cancelled else "running" if running else "waiting"
        )
        node = held.node if state == "running" else ""
        return TaskRow(number, state, parameters, node, held.restarts)

    found = [
        JobRow(o.name, o.submitted_at, tuple(row(o, n, p) for n, p in enumerate(o.parameters)))
        for o in submissions
    ]
    return tuple(sorted(found, key=lambda job: (job.submitted_at, job.name)))
