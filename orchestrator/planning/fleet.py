"""
A fleet as ordinary deployments: one with bucket and VM, and one for each node, in a folder of that bucket.

Pure. The queue, its order and the requeue are Slurm's; what is decided here is what the deployments are, and which
tasks Slurm has forgotten.
"""

import itertools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orchestrator.contract.object_names import ENGINE, JOBS, NODES, TASKS
from orchestrator.domain.spec import BucketSpec, CheckpointSpec, FleetSpec, JobSpec, Spec
from orchestrator.domain.units import Duration

OLDEST_IMAGE = "projects/ubuntu-os-cloud/global/images/family/ubuntu-2204-lts"
"""The VM's image, as old as the TPUs' (docs/fleet.md): programs that were taken there run on all nodes."""
PORT = 6817
"""Slurm's own port for the controller; those of the nodes follow it."""
MOST_TASKS = 10_000
FOR_EVER = Duration(10 * 365 * 86400)
RESTARTS = 1000
"""Failed starts in a row after which a node's Slurm is given up: it fails while the controller is away."""


@dataclass(frozen=True)
class Controller:
    """Say where a fleet's Slurm is reached, and which archive of it (`slurm-SHA256.tar.gz`) all machines run."""

    address: str
    port: int
    engine: str


def head_of(spec: Spec) -> Spec:
    """Return the deployment that has the fleet's bucket and VM."""
    assert spec.vm != "none"  # noqa: S101 (a rule of the file)
    return replace(spec, vm=replace(spec.vm, image=spec.vm.image or OLDEST_IMAGE))


def node_names(spec: Spec) -> tuple[str, ...]:
    """Return the names of the nodes, which are those of their deployments, and of Slurm's nodes."""
    return tuple(f"{spec.name}-{number:03d}" for number in range(1, nodes(spec) + 1))


def nodes(spec: Spec) -> int:
    """Return how many nodes the fleet has."""
    return (spec.fleet or FleetSpec(0)).nodes


def node_spec(spec: Spec, name: str, bucket: str, controller: Controller) -> Spec:
    """Return the deployment of one node, whose job is to be a node of Slurm."""
    variables = {
        "FLEET_NAME": spec.name, "FLEET_NODE": name, "FLEET_NODES": str(nodes(spec)),
        # Not its address: that of a VM which is made again is another one, and nodes read it from the bucket.
        "FLEET_PORT": str(controller.port), "FLEET_ENGINE": controller.engine,
    }  # fmt: skip
    job = JobSpec(
        "bash ./slurm.sh node", data={"engine": f"gs://{bucket}/{ENGINE.rstrip('/')}"}, env=variables,
        failures=RESTARTS, warm_start=False,
        # What tasks save is theirs: the node itself has nothing to go on from.
        checkpoint=CheckpointSpec(format="outputs"),
    )  # fmt: skip
    return replace(
        spec, name=name, vm="none", fleet=None, job=job,
        bucket=BucketSpec(name=bucket, adopt=True, prefix=f"{NODES}{name}"),
        # Its job is silent while tasks run.
        watch=replace(spec.watch, stall=FOR_EVER, on_vm=False),
    )  # fmt: skip


def fleet_of(spec: Spec) -> str:
    """Return the name of the fleet that a deployment is a part of, empty for all others."""
    if spec.fleet is not None:
        return spec.name
    return spec.name.rpartition("-")[0] if spec.bucket.prefix == f"{NODES}{spec.name}" else ""


@dataclass(frozen=True)
class Order:
    """
    Hold one job of a fleet as it was submitted: *parameters* has the variables of each task.

    *script* is what Slurm runs, *bundle* the sha256 of the code. *cancelled* are numbers of tasks. *collect* names
    the files whose values become columns of the table of results, *into* the file that the table is written to.
    It begins *after* other jobs, `ok` or `any` by the name of each. While it is *held*, no task of it begins.
    *slices* is the smallest and the largest number of nodes for each task.
    *user* is the login that has submitted it, *priority* one of the fleet's.
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
    """Return the deployment that stands for the tasks of a job, each of which has its own folder."""
    place = BucketSpec(name=bucket, adopt=True, prefix=f"{JOBS}{name}/tasks/0")
    return replace(spec, vm="none", fleet=None, job=job, bucket=place)


def task_folder(job: str, number: int) -> str:
    """Return the folder of a task in the bucket, with a slash at the end."""
    return f"{JOBS}{job}/{TASKS}{number}/"


def grid(matrix: Mapping[str, Sequence[str]]) -> tuple[Mapping[str, str], ...]:
    """Return the variables of each task: every combination, the last parameter the fastest."""
    keys = list(matrix)
    return tuple(
        dict(zip(keys, values, strict=True)) for values in itertools.product(*(matrix[k] for k in keys))
    )


@dataclass(frozen=True)
class Queued:
    """
    Hold one task as Slurm's queue shows it; *node* is empty while it waits.

    *after* is what Slurm lets it wait for, as `afterok:7` with the number of an array of Slurm. *account* and
    *priority* are empty where Slurm has no database.
    """

    job: str
    number: int
    state: str
    slurm_id: str
    restarts: int = 0
    node: str = ""
    held: bool = False
    after: tuple[str, ...] = ()
    account: str = ""
    priority: str = ""

    @property
    def array(self) -> str:
        """Return the number of its array, which Slurm takes for all tasks of it."""
        return self.slurm_id.partition("_")[0]


def unfinished(order: Order, ended: Collection[int]) -> tuple[int, ...]:
    """Return the tasks that must be in Slurm's queue."""
    over = {*ended, *order.cancelled}
    return tuple(number for number in range(len(order.parameters)) if number not in over)


def again_of(order: Order, ended: Mapping[int, str], asked: Collection[int]) -> tuple[int, ...]:
    """Return which of the tasks that are *asked* for have failed or were cancelled, so that they may run again."""
    return tuple(
        number for number in sorted(asked)
        if ended.get(number) == "failed" or (number in order.cancelled and number not in ended)
    )  # fmt: skip


def cancelled(orders: Iterable[Order], queued: Iterable[Queued]) -> tuple[Queued, ...]:
    """Return what waits or runs in Slurm although it was cancelled."""
    numbers = {order.name: order.cancelled for order in orders}
    return tuple(one for one in queued if one.number in numbers.get(one.job, ()))


@dataclass(frozen=True)
class TaskRow:
    """Say how far one task is: waiting, running, done, failed, unclaimed or cancelled."""

    number: int
    state: str
    parameters: Mapping[str, str]
    node: str = ""
    restarts: int = 0


@dataclass(frozen=True)
class JobRow:
    """Sum up one job of the queue."""

    name: str
    submitted_at: float
    tasks: tuple[TaskRow, ...] = field(default=())

    def count(self, state: str) -> int:
        """Return how many tasks are in a state."""
        return sum(task.state == state for task in self.tasks)


def rows(
    orders: Iterable[Order], ended: Mapping[str, Mapping[int, str]], queued: Iterable[Queued]
) -> tuple[JobRow, ...]:
    """
    Return the jobs, the newest last. The marks in the bucket decide, then what was cancelled, then the queue.

    A task that neither has is waiting: it is submitted again by the next look of the fleet's watch.
    """
    in_queue = {(one.job, one.number): one for one in queued}

    def row(order: Order, number: int, parameters: Mapping[str, str]) -> TaskRow:
        phase = ended.get(order.name, {}).get(number)
        held = in_queue.get((order.name, number), Queued(order.name, number, "PENDING", ""))
        running = held.state in {"RUNNING", "COMPLETING"}
        state = phase or ("cancelled" if number in order.cancelled else "running" if running else "waiting")
        node = held.node if state == "running" else ""
        return TaskRow(number, state, parameters, node, held.restarts)

    found = [
        JobRow(o.name, o.submitted_at, tuple(row(o, n, p) for n, p in enumerate(o.parameters)))
        for o in orders
    ]
    return tuple(sorted(found, key=lambda job: (job.submitted_at, job.name)))
