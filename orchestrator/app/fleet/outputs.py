"""Read what tasks have printed and saved from the bucket."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter, leaving
from orchestrator.app.fleet.queue import (
    NO_JOB,
    fleet_to_read,
    job_and_task,
    submitted_job,
    task_numbers,
    task_store,
)
from orchestrator.app.fleet.sessions import Fleet
from orchestrator.domain.ports import Store
from orchestrator.domain.text.amounts import size_text
from orchestrator.engine.bucket import uncommitted
from orchestrator.engine.bucket.checkpoints import read_checkpoints
from orchestrator.engine.bucket.fetch import Download, download_of, fetch
from orchestrator.engine.bucket.job_logs import JobLogReader
from orchestrator.errors import NotFoundError
from orchestrator.planning.fleet.tasks import Submission


def read_log(choice: Choice, which: str, show: Callable[[int, int, str], None], reporter: Reporter) -> bool:
    """Pass each line of worker 0 to *show*, with task and start number; return whether there was any."""
    fleet = fleet_to_read(choice, reporter)
    name, number = job_and_task(which)
    store = fleet.head.store
    submission = submitted_job(store, name)
    found = False
    for task in task_numbers(submission, number):
        log = JobLogReader(task_store(fleet, name, task), 0)
        for lines in (log.new_lines(), log.unfinished()):
            for start, _, line in lines:
                found = True
                show(task, start, line)
    return found


@dataclass(frozen=True)
class FetchedTask:
    """What was downloaded for one task to which folder; *number* is that of the step or of the start, by *kind*."""

    task: int
    kind: str
    number: int
    folder: Path


def fetch_checkpoints(
    choice: Choice, which: str, output: Path | None, reporter: Reporter, *, uncommitted_files: bool = False
) -> list[FetchedTask]:
    """
    Download the newest checkpoint of a task, or of each task that has one, below a new folder.

    With *uncommitted_files* it is the files that no checkpoint contains.
    """
    fleet = fleet_to_read(choice, reporter)
    name, number = job_and_task(which)
    submission = submitted_job(fleet.head.store, name)
    kind, found = "uncommitted" if uncommitted_files else "step", []
    for task in task_numbers(submission, number):
        store = task_store(fleet, name, task)
        held = _uncommitted(store) if uncommitted_files else _checkpoint(store, submission)
        if held is None:
            continue
        folder = (output or Path(f"{name}-{'uncommitted' if uncommitted_files else 'checkpoints'}")) / str(
            task
        )
        folder.parent.mkdir(parents=True, exist_ok=True)
        saved, download = held
        reporter.say(f"{name}/{task}: {download.what}, {size_text(download.size)}")
        with leaving("what was copied stays", "run the same command again to go on"):
            fetch(store, download, folder, lambda _: None)
        found.append(FetchedTask(task, kind, saved, folder))
    if not found:
        _raise_nothing(fleet, which, submission, uncommitted_files=uncommitted_files)
    return found


def _checkpoint(store: Store, submission: Submission) -> tuple[int, Download] | None:
    complete = (one for one in read_checkpoints(store, submission.job.checkpoint) if one.complete)
    one = next(complete, None)
    return (one.step, download_of(one)) if one else None


def _uncommitted(store: Store) -> tuple[int, Download] | None:
    found = uncommitted.read_uncommitted(store)
    return (found[0].incarnation, uncommitted.download_of(store, found[0])) if found else None


def _raise_nothing(fleet: Fleet, which: str, submission: Submission, *, uncommitted_files: bool) -> None:
    """Raise NotFoundError that names the command for what exists instead."""
    if uncommitted_files:
        raise NotFoundError(f"{which} has no uncommitted files", hint=NO_JOB, changed="nothing was written")
    name, number = job_and_task(which)
    for task in task_numbers(submission, number):
        for one in uncommitted.read_uncommitted(task_store(fleet, name, task))[:1]:
            raise NotFoundError(
                f"{which} has no complete checkpoint, but uncommitted files ({size_text(one.size)} of task {task})",
                hint=f"run: tpuctl fleet fetch {which} --uncommitted", changed="nothing was written",
            )  # fmt: skip
    raise NotFoundError(f"{which} has no complete checkpoint yet", hint=NO_JOB, changed="nothing was written")
