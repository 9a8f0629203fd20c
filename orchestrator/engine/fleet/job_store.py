"""Store the jobs of a fleet in its bucket: submissions and ends. Slurm's queue is rebuilt from them."""

import contextlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from orchestrator.contract.bucket.object_names import (
    EARLIER_ENDS,
    ENDS,
    JOBS,
    SUBMISSIONS,
)
from orchestrator.domain.checksum import bytes_with_checksum, verified
from orchestrator.domain.ports import Store
from orchestrator.engine.records.record_format import adapter
from orchestrator.errors import ConflictError, NotFoundError, PreconditionError, TpuctlError
from orchestrator.planning.fleet.tasks import END_STATES, Submission, TaskState
from orchestrator.planning.fleet.use import TaskEnd

SCHEMA = 1
TRIES = 5
# The older word is in names that earlier releases wrote.
_END_STATES = {state.value: state for state in END_STATES} | {"unclaimed": TaskState.UNCOMMITTED}


def create(store: Store, submission: Submission) -> Submission:
    """
    Write a new job to the bucket and return it; return the stored one if the same job was submitted before.

    Raise ConflictError if a different job has the name.
    """
    try:
        store.write(_name(submission.name), encoded(submission), if_generation=0)
    except PreconditionError:
        held = read(store, submission.name)
        # The same submission again, perhaps after a kill: continue with the stored one.
        if held is not None and held == replace(
            submission, script=held.script, submitted_at=held.submitted_at, cancelled=held.cancelled,
            held=held.held, into=held.into,
        ):  # fmt: skip
            return held
        raise ConflictError(
            f"a job {submission.name} was submitted before, with other code or settings",
            hint="choose another name in the file", changed="nothing was submitted",
        ) from None  # fmt: skip
    return submission


def read(store: Store, name: str) -> Submission | None:
    """Return the job of that name, or None."""
    held = store.read(_name(name))
    return None if held is None else decoded(held.data, name)


@dataclass(frozen=True)
class ReadSubmissions:
    """The *jobs* that can be read; *unread* are the others by name, each with what is wrong with it."""

    jobs: tuple[Submission, ...]
    unread: Mapping[str, TpuctlError] = field(default_factory=dict)


def read_all(store: Store) -> ReadSubmissions:
    """Return all jobs. Raise NotFoundError if the fleet has no bucket, that is, is not up."""
    try:
        found = store.list(SUBMISSIONS)
    except NotFoundError as error:
        raise NotFoundError(
            "the fleet is not up: it has no bucket",
            hint="run: tpuctl fleet up",
            changed="nothing was changed",
        ) from error
    names = [one.name[len(SUBMISSIONS) : -len(".json")] for one in found]
    return read_some(store, names)


def read_some(store: Store, names: Iterable[str]) -> ReadSubmissions:
    """Return the jobs of these names that exist; a spoiled one does not hide the others."""
    jobs, unread = [], {}
    for name in names:
        # Outside: a bucket that does not answer says nothing about any job.
        held = store.read(_name(name))
        if held is None:
            continue
        try:
            jobs.append(decoded(held.data, name))
        except TpuctlError as error:
            unread[name] = error
    return ReadSubmissions(tuple(jobs), unread)


def change(store: Store, name: str, edit: Callable[[Submission], Submission]) -> Submission | None:
    """Change a job by compare-and-swap and return it; return None if there is none of that name."""
    for _ in range(TRIES):
        held = store.read(_name(name))
        if held is None:
            return None
        submission = edit(decoded(held.data, name))
        # A compare-and-swap: if another command wrote meanwhile, read its version and edit that.
        with contextlib.suppress(PreconditionError):
            store.write(_name(name), encoded(submission), if_generation=held.generation)
            return submission
    raise ConflictError(
        f"job {name}: another command is changing it",
        hint="run it again",
        changed="this command changed nothing in it",
    )


def end_marks(store: Store, job: str) -> dict[int, TaskEnd]:
    """Return how and when each ended task has ended, by task number."""
    found: dict[int, TaskEnd] = {}
    prefix = f"{JOBS}{job}/{ENDS}"
    for one in store.list(prefix):
        number, _, word = one.name[len(prefix) :].partition(".")
        # Machines write here, so names that do not fit are ignored.
        if number.isdecimal() and len(number) <= 5 and word in _END_STATES:
            end = TaskEnd(_END_STATES[word], one.updated)
            found[int(number)] = min(end, found.get(int(number), end), key=_position)
    return found


def _position(end: TaskEnd) -> int:
    return END_STATES.index(end.state)


def ended(store: Store, job: str) -> dict[int, TaskState]:
    """Return how each ended task has ended, by task number."""
    return {number: end.state for number, end in end_marks(store, job).items()}


def keep_failure_mark(store: Store, job: str, number: int) -> None:
    """Move the failure mark of a task aside, so that the task may run again; its content is kept."""
    name = f"{JOBS}{job}/{ENDS}{number}.{TaskState.FAILED.value}"
    mark = store.read(name)
    if mark is not None:
        with contextlib.suppress(PreconditionError):  # An earlier call was killed after this step.
            store.write(f"{JOBS}{job}/{EARLIER_ENDS}{number}.{mark.generation}", mark.data, if_generation=0)
        store.delete(name, mark.generation)


def all_ended(store: Store, submissions: Iterable[Submission]) -> dict[str, dict[int, TaskState]]:
    """Return the ends of all jobs, by job name."""
    return {submission.name: ended(store, submission.name) for submission in submissions}


def encoded(submission: Submission) -> bytes:
    """Return the content of the job's object."""
    order = adapter(Submission).dump_python(submission, mode="json")
    saves = order["job"]["checkpoint"]
    saves["save_seconds"] = saves.pop("save_pause")  # the key that jobs of every release have
    return bytes_with_checksum({"schema": SCHEMA, "order": order})


def decoded(data: bytes, name: str) -> Submission:
    """Parse a job's object. Raise TpuctlError if it is damaged or of a newer version."""
    try:
        body = verified(data)
        if body["schema"] != SCHEMA:
            raise ValueError(f"it has schema {body['schema']!r}")  # noqa: TRY301 (one error for all of it)
        saves = body["order"]["job"]["checkpoint"]
        saves["save_pause"] = saves.pop("save_seconds", None)
        submission: Submission = adapter(Submission).validate_python(body["order"])
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TpuctlError(
            f"the job {name} cannot be read: {error}",
            hint=f"with this tpuctl as new as the one that has submitted it, delete {_name(name)} from the fleet's "
            "bucket and submit the job's file again; what was cancelled of it then runs again",
            changed="nothing was changed",
        ) from error
    return submission


def _name(job: str) -> str:
    return f"{SUBMISSIONS}{job}.json"
