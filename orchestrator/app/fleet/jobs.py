"""Change a fleet's jobs in the bucket, and bring Slurm's queue in step: submit, cancel, retry, hold."""

from dataclasses import dataclass, replace
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, leaving
from orchestrator.app.fleet.caller import caller, check_owner
from orchestrator.app.fleet.queue import fleet_to_read, job_and_task, submitted_job, task_numbers
from orchestrator.app.fleet.sessions import Fleet
from orchestrator.app.source.bundle import Bundle, build
from orchestrator.app.source.job_data import read_data, send_data, with_code
from orchestrator.app.source.local_data import DataSet
from orchestrator.app.source.source_folder import source_folder
from orchestrator.app.source.wanted import need_python
from orchestrator.config.fleet_job import JobFile, read_job
from orchestrator.config.layers import overrides_of
from orchestrator.contract.bucket.object_names import BUNDLES, JOBS
from orchestrator.domain.spec import Spec
from orchestrator.engine.fleet import job_store, user_store
from orchestrator.errors import UsageError
from orchestrator.google.objects import GcsStore
from orchestrator.planning.fleet.deployments import nodes, task_spec
from orchestrator.planning.fleet.tasks import Submission, again_of
from orchestrator.planning.fleet.users import NORMAL
from orchestrator.planning.job import heartbeat_interval
from orchestrator.private_folders import private_folder
from orchestrator.scripts.render import MachineTarget, task_script


@dataclass(frozen=True)
class Submitted:
    """
    The result of a submission: the job and its number of tasks, of which some may have *ended* before.

    With *dry_run* nothing was sent: *files* and *bytes* are those of code and data. *usd* is the cost if each
    task takes the given time, None if that or the price is unknown.
    """

    name: str
    tasks: int
    ended: int
    dry_run: bool = False
    files: int = 0
    bytes: int = 0
    usd: float | None = None


def submit(
    choice: Choice, file: Path, reporter: Reporter, *, dry_run: bool = False, takes: float | None = None,
    user: str | None = None, priority: str | None = None,
) -> Submitted:  # fmt: skip
    """
    Send code and data, write the job into the bucket, and queue its tasks under the caller's login.

    Submitting the same file again changes nothing, or continues an interrupted submission. *dry_run* only
    checks and counts; *takes* is the expected duration of a task in seconds.
    """
    fleet = fleet_to_read(choice, reporter)
    wanted = read_job(file, fleet.path, overrides_of(choice.settings))
    _check_slices(fleet.spec, wanted)
    login, priority = _who_and_when(fleet, wanted, choice, user, priority)
    spec = task_spec(fleet.spec, fleet.bucket, wanted.name, wanted.job)
    if choice.cloud == "local":
        need_python(spec)
    sets = read_data(file, spec, choice.cloud, reporter)
    bundle = _bundle(fleet, file, spec, wanted, sets)
    target = MachineTarget(
        "tpu", fleet.head.project, fleet.bucket, 0, bundle.digest, "", runs_job=True,
        heartbeat_interval=heartbeat_interval(spec),
    )  # fmt: skip
    script = task_script(spec, target, wanted.name, wanted.parameters, wanted.collect)
    if dry_run:
        return _counted(fleet, wanted, bundle, sets, takes)
    slurm = fleet.slurm()
    store = fleet.head.cloud.store
    if sets:
        send_data(fleet.head, sets, GcsStore(fleet.head.clients, fleet.bucket, f"{JOBS}{wanted.name}/"))
    store.upload(f"{JOBS}{wanted.name}/{BUNDLES}{bundle.digest}.tar.gz", bundle.path)
    submission = job_store.create(
        store,
        Submission(
            wanted.name, wanted.parameters, wanted.job, bundle.digest, script, fleet.head.clock.now(),
            collect=wanted.collect, into=wanted.into, after=wanted.after, slices=wanted.slices, user=login,
            priority="" if priority == NORMAL else priority,
        ),
    )  # fmt: skip
    with leaving(f"{submission.name} is submitted", "run the same command again to see it queued"):
        fleet.submit_missing(slurm, submission.name)
    return Submitted(
        submission.name, len(submission.parameters), len(job_store.ended(store, submission.name))
    )


def _who_and_when(
    fleet: Fleet, wanted: JobFile, choice: Choice, user: str | None, priority: str | None
) -> tuple[str, str]:
    """Return user and priority of a job. Raise UsageError for a priority or an earlier job that is unknown."""
    fleet_users = user_store.read_users(fleet.head.store)
    login, priority = caller(choice, fleet_users, user), priority or wanted.priority
    if priority and priority not in {NORMAL, *fleet_users.priorities}:
        raise UsageError(
            f"this fleet has no priority {priority!r}",
            hint=f"one of {', '.join({NORMAL: 0, **fleet_users.priorities})}",
            changed="nothing was submitted", code="TPU-101",
        )  # fmt: skip
    for name in wanted.after:
        # Only existing jobs can be waited for, so that no two jobs wait for each other.
        submitted_job(fleet.head.store, name)
    return login, priority


def _bundle(fleet: Fleet, file: Path, spec: Spec, wanted: JobFile, sets: tuple[DataSet, ...]) -> Bundle:
    """Pack the job's code."""
    folder = fleet.head.folder / "jobs"
    private_folder(folder)
    # The job's file and the table of `fleet results` are no code, so the same job stays the same.
    written = [f"/{name}" for name in (file.name, wanted.into) if name]
    return build(source_folder(file, spec), folder, more=with_code(sets), written=written)


def _counted(
    fleet: Fleet, wanted: JobFile, bundle: Bundle, sets: tuple[DataSet, ...], takes: float | None
) -> Submitted:
    """Return what a dry run says: files, bytes and, with the seconds that a task *takes*, the cost."""
    data = [one for held in sets for one in held.files]
    hour = fleet.price().node.billed_usd
    hours = None if takes is None else takes / 3600 * len(wanted.parameters) * wanted.slices[1]
    return Submitted(
        wanted.name, len(wanted.parameters), 0, dry_run=True, files=bundle.files + len(data),
        bytes=bundle.bytes + sum(one.size for one in data),
        usd=None if hour is None or hours is None else hour * hours,
    )  # fmt: skip


def _check_slices(spec: Spec, wanted: JobFile) -> None:
    """Raise UsageError if the fleet can never provide a task's slices."""
    least, most = wanted.slices
    message, hint = "", ""
    if least > nodes(spec):
        message, hint = f"the fleet has {nodes(spec)} nodes", "ask for more of them in the fleet's file"
    elif most > 1 and spec.tpu.other_types:
        message, hint = "they must be of one type", "leave out tpu.other_types in the fleet's file"
    if message:
        raise UsageError(
            f"{wanted.name}: each task needs {least} slices, and {message}",
            hint=f"{hint}, then run: tpuctl fleet up",
            changed="nothing was submitted", code="TPU-101",
        )  # fmt: skip


def cancel(choice: Choice, which: str, reporter: Reporter, user: str | None = None) -> int:
    """End a job or one task (JOB/3) for good; return how many tasks were waiting or running."""
    fleet = fleet_to_read(choice, reporter)
    name, number = job_and_task(which)
    store = fleet.head.cloud.store
    submission = submitted_job(store, name)
    check_owner(choice, user_store.read_users(store), user, submission)
    numbers = task_numbers(submission, number)
    # In the bucket first, so that Slurm's queue is not filled up again with cancelled tasks.
    job_store.change(
        store, name, lambda one: replace(one, cancelled=tuple(sorted({*one.cancelled, *numbers})))
    )
    slurm = fleet.slurm()
    tasks = [one for one in slurm.queue() if one.job == name and one.number in numbers]
    slurm.cancel(tasks)
    return len(tasks)


def retry(choice: Choice, which: str, reporter: Reporter, user: str | None = None) -> tuple[int, ...]:
    """Queue the failed and cancelled tasks of a job, or that task (JOB/3), again; return them."""
    fleet = fleet_to_read(choice, reporter)
    name, number = job_and_task(which)
    store = fleet.head.cloud.store
    submission = submitted_job(store, name)
    check_owner(choice, user_store.read_users(store), user, submission)
    ended = job_store.ended(store, name)
    again = again_of(submission, ended, task_numbers(submission, number))
    slurm = fleet.slurm()
    for one in again:
        job_store.keep_failure_mark(store, name, one)
    job_store.change(
        store, name, lambda one: replace(one, cancelled=tuple(n for n in one.cancelled if n not in again))
    )
    with leaving("the tasks may run again", "run the same command again to see them queued"):
        # Even for none: a killed `retry` may have reset them without queueing.
        fleet.submit_missing(slurm, name)
    return again


def hold(choice: Choice, name: str, reporter: Reporter, *, held: bool, user: str | None = None) -> bool:
    """Hold a job, so that none of its tasks starts, or release it; return whether that changed anything."""
    fleet = fleet_to_read(choice, reporter)
    store = fleet.head.cloud.store
    before = submitted_job(store, name)
    check_owner(choice, user_store.read_users(store), user, before)
    job_store.change(store, name, lambda one: replace(one, held=held))
    with leaving(f"{name} is {'held' if held else 'released'}", "run the same command again to tell Slurm"):
        fleet.submit_missing(fleet.slurm(), name)
    return before.held != held
