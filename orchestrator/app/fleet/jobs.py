"""Jobs of a fleet: written into the bucket first, queued by Slurm, read back from the bucket."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.app.choice import Choice
from orchestrator.app.fleet.sessions import Fleet
from orchestrator.app.reporter import Reporter, leaving
from orchestrator.app.source_folder import source_folder
from orchestrator.app.wanted import need_python
from orchestrator.config.fleet_job import read_job
from orchestrator.config.layers import overrides_of
from orchestrator.contract.object_names import BUNDLES, JOBS
from orchestrator.domain.ports import Store
from orchestrator.engine import fleet_orders
from orchestrator.errors import TpuctlError, UsageError
from orchestrator.planning.fleet import JobRow, Order, rows, task_folder, task_spec, unfinished
from orchestrator.private_folders import private_folder
from orchestrator.scripts.render import MachineTarget, task_script
from orchestrator.ssh.bundle import build

NO_JOB = "see: tpuctl fleet queue"


@dataclass(frozen=True)
class Submitted:
    """Hold what was submitted: the job and how many tasks, of which some may have *ended* before."""

    name: str
    tasks: int
    ended: int


def submit(choice: Choice, file: Path, reporter: Reporter) -> Submitted:
    """
    Send the code, write the job into the bucket, and queue its tasks.

    The same file again changes nothing, and goes on where a submission was killed.
    """
    fleet = fleet_to_read(choice, reporter)
    wanted = read_job(file, fleet.path, overrides_of(choice.settings))
    spec = task_spec(fleet.spec, fleet.bucket, wanted.name, wanted.job)
    if choice.cloud == "local":
        need_python(spec)
    slurm = fleet.slurm()
    folder = fleet.head.folder / "jobs"
    private_folder(folder)
    bundle = build(source_folder(file, spec), folder)
    target = MachineTarget(
        "tpu", fleet.head.project, fleet.bucket, 0, bundle.digest, "", runs_job=True,
        heartbeat=max(2.0, min(30.0, 2 * spec.watch.poll)),
    )  # fmt: skip
    script = task_script(spec, target, wanted.name, wanted.parameters, wanted.collect)
    store = fleet.head.cloud.store
    store.upload(f"{JOBS}{wanted.name}/{BUNDLES}{bundle.digest}.tar.gz", bundle.path)
    order = fleet_orders.create(
        store,
        Order(
            wanted.name,
            wanted.parameters,
            wanted.job,
            bundle.digest,
            script,
            fleet.head.clock.now(),
            collect=wanted.collect,
            into=wanted.into,
        ),
    )
    with leaving(f"{order.name} is submitted", "run the same command again to see it queued"):
        ended = fleet_orders.ended(store, order.name)
        numbers = unfinished(order, ended)
        if numbers:
            slurm.submit(order.name, order.script, numbers)
    return Submitted(order.name, len(order.parameters), len(ended))


@dataclass(frozen=True)
class Queue:
    """Hold the jobs; *trouble* is why Slurm did not answer: what runs is not known then."""

    jobs: tuple[JobRow, ...]
    trouble: str


def queue(fleet: Fleet, name: str | None) -> Queue:
    """Return all jobs, or the one of that name."""
    store = fleet.head.store
    orders = fleet_orders.read_all(store) if name is None else (submitted_order(store, name),)
    trouble = ""
    try:
        queued = fleet.slurm().queue()
    except TpuctlError as error:
        queued, trouble = (), error.message
    return Queue(rows(orders, fleet_orders.all_ended(store, orders), queued), trouble)


def cancel(choice: Choice, which: str, reporter: Reporter) -> int:
    """End a job or one task (JOB/3) for good; return how many tasks were waiting or running."""
    fleet = fleet_to_read(choice, reporter)
    name, number = job_and_task(which)
    store = fleet.head.cloud.store
    order = submitted_order(store, name)
    numbers = task_numbers(order, number)
    # First in the bucket: what Slurm then forgets, or has not been told, is not submitted again.
    fleet_orders.change(
        store, name, lambda one: replace(one, cancelled=tuple(sorted({*one.cancelled, *numbers})))
    )
    slurm = fleet.slurm()
    tasks = [one for one in slurm.queue() if one.job == name and one.number in numbers]
    slurm.cancel(tasks)
    return len(tasks)


def fleet_to_read(choice: Choice, reporter: Reporter) -> Fleet:
    """Return the fleet for a command that changes none of its machines."""
    return Fleet(choice, reporter, lambda _: Reporter(), only_looks=True)


def task_store(fleet: Fleet, job: str, number: int) -> Store:
    """Return what a task has in the bucket."""
    return fleet.head.store.below(task_folder(job, number))


def submitted_order(store: Store, name: str) -> Order:
    """Return a job as it was submitted. Raise UsageError where there is none of that name."""
    order = fleet_orders.read(store, name)
    if order is None:
        raise UsageError(
            f"there is no job {name!r}", hint=NO_JOB, changed="nothing was changed", code="TPU-137"
        )
    return order


def job_and_task(text: str) -> tuple[str, int | None]:
    """Return job and task of JOB or JOB/3."""
    found = re.fullmatch(r"([a-z][-a-z0-9]*)(?:/(\d{1,5}))?", text)
    if found is None:
        raise UsageError(
            f"{text!r} names no job", hint="write JOB, or JOB/3 for one of its tasks",
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    return found[1], None if found[2] is None else int(found[2])


def task_numbers(order: Order, number: int | None) -> Sequence[int]:
    """Return all tasks of a job, or the one asked for. Raise UsageError for one that it does not have."""
    if number is None:
        return range(len(order.parameters))
    if number >= len(order.parameters):
        raise UsageError(
            f"{order.name} has the tasks 0 to {len(order.parameters) - 1}", hint=NO_JOB,
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    return (number,)
