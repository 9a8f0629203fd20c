"""Jobs of a fleet: written into the bucket first, queued by Slurm, read back from the bucket."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.app.choice import Choice
from orchestrator.app.fleet import Fleet
from orchestrator.app.reporter import Reporter, leaving
from orchestrator.app.source_folder import source_folder
from orchestrator.app.wanted import need_python
from orchestrator.config.fleet_job import read_job
from orchestrator.config.layers import overrides_of
from orchestrator.contract.object_names import BUNDLES, JOBS
from orchestrator.domain.amounts import size_text
from orchestrator.domain.ports import Store
from orchestrator.engine import fleet_orders
from orchestrator.engine.checkpoints import read_checkpoints
from orchestrator.engine.fetch import fetch, parcel_of
from orchestrator.engine.job_logs import JobLog
from orchestrator.errors import NotFoundError, TpuctlError, UsageError
from orchestrator.google.objects import GcsStore
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
    fleet = _fleet(choice, reporter)
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
    script = task_script(spec, target, wanted.name, wanted.parameters)
    store = fleet.head.cloud.store
    store.upload(f"{JOBS}{wanted.name}/{BUNDLES}{bundle.digest}.tar.gz", bundle.path)
    order = fleet_orders.create(
        store,
        Order(wanted.name, wanted.parameters, wanted.job, bundle.digest, script, fleet.head.clock.now()),
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


def queue(choice: Choice, reporter: Reporter, name: str | None) -> Queue:
    """Return all jobs, or the one of that name."""
    fleet = _fleet(choice, reporter)
    store = fleet.head.store
    orders = fleet_orders.read_all(store) if name is None else (_order(store, name),)
    trouble = ""
    try:
        queued = fleet.slurm().queue()
    except TpuctlError as error:
        queued, trouble = (), error.message
    return Queue(rows(orders, fleet_orders.all_ended(store, orders), queued), trouble)


def cancel(choice: Choice, which: str, reporter: Reporter) -> int:
    """End a job or one task (JOB/3) for good; return how many tasks were waiting or running."""
    fleet = _fleet(choice, reporter)
    name, number = _which(which)
    store = fleet.head.cloud.store
    order = _order(store, name)
    numbers = range(len(order.parameters)) if number is None else (_checked(order, number),)
    # First in the bucket: what Slurm then forgets, or has not been told, is not submitted again.
    fleet_orders.change(
        store, name, lambda one: replace(one, cancelled=tuple(sorted({*one.cancelled, *numbers})))
    )
    slurm = fleet.slurm()
    tasks = [one for one in slurm.queue() if one.job == name and one.number in numbers]
    slurm.cancel(tasks)
    return len(tasks)


def read_log(choice: Choice, which: str, show: Callable[[int, int, str], None], reporter: Reporter) -> bool:
    """Give each line of a task's log to *show*, with the number of its start; return whether there was any."""
    fleet = _fleet(choice, reporter)
    name, number = _which(which)
    store = fleet.head.store
    order = _order(store, name)
    found = False
    for task in range(len(order.parameters)) if number is None else (_checked(order, number),):
        log = JobLog(_task_store(fleet, name, task))
        for lines in (log.new_lines(), log.unfinished()):
            for incarnation, _, line in lines:
                found = True
                show(task, incarnation, line)
    return found


@dataclass(frozen=True)
class FetchedTask:
    """Say what was copied of one task: the checkpoint of a *step* into a *folder*."""

    number: int
    step: int
    folder: Path


def fetch_results(choice: Choice, which: str, output: Path | None, reporter: Reporter) -> list[FetchedTask]:
    """Copy the newest checkpoint of a task, or of each task that has one, below a new folder."""
    fleet = _fleet(choice, reporter)
    name, number = _which(which)
    order = _order(fleet.head.store, name)
    numbers = range(len(order.parameters)) if number is None else (_checked(order, number),)
    found = []
    for task in numbers:
        store = _task_store(fleet, name, task)
        complete = [one for one in read_checkpoints(store, order.job.checkpoint) if one.complete]
        if not complete:
            continue
        one = complete[0]
        folder = (output or Path(f"{name}-results")) / str(task)
        folder.parent.mkdir(parents=True, exist_ok=True)
        parcel = parcel_of(one)
        reporter.say(f"{name}/{task}: step {one.step}, {size_text(parcel.size)}")
        with leaving("what was copied stays", "run the same command again to go on"):
            fetch(store, parcel, folder, lambda _: None)
        found.append(FetchedTask(task, one.step, folder))
    if not found:
        raise NotFoundError(
            f"{which} has no complete checkpoint yet", hint=NO_JOB, changed="nothing was written"
        )
    return found


def _fleet(choice: Choice, reporter: Reporter) -> Fleet:
    return Fleet(choice, reporter, lambda _: Reporter(), only_looks=True)


def _task_store(fleet: Fleet, job: str, number: int) -> GcsStore:
    return GcsStore(fleet.head.clients, fleet.bucket, task_folder(job, number))


def _order(store: Store, name: str) -> Order:
    order = fleet_orders.read(store, name)
    if order is None:
        raise UsageError(
            f"there is no job {name!r}", hint=NO_JOB, changed="nothing was changed", code="TPU-137"
        )
    return order


def _which(text: str) -> tuple[str, int | None]:
    """Return job and task of JOB or JOB/3."""
    found = re.fullmatch(r"([a-z][-a-z0-9]*)(?:/(\d{1,5}))?", text)
    if found is None:
        raise UsageError(
            f"{text!r} names no job", hint="write JOB, or JOB/3 for one of its tasks",
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    return found[1], None if found[2] is None else int(found[2])


def _checked(order: Order, number: int) -> int:
    if number >= len(order.parameters):
        raise UsageError(
            f"{order.name} has the tasks 0 to {len(order.parameters) - 1}", hint=NO_JOB,
            changed="nothing was changed", code="TPU-101",
        )  # fmt: skip
    return number
