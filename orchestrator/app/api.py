"""
Provide the Python API: a program acts on a deployment or a fleet as the commands do.

docs/python-api.md documents its promise. Programs may use the names in `__all__`; everything else of the
package may change with each version.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from orchestrator.app.checkpoints import list_checkpoints
from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.cost import cost_of
from orchestrator.app.down import take_down
from orchestrator.app.fetch import WantedFiles, fetch_files
from orchestrator.app.fleet import jobs
from orchestrator.app.fleet.down import fleet_down
from orchestrator.app.fleet.outputs import fetch_checkpoints
from orchestrator.app.fleet.queue import fleet_to_read, submitted_job
from orchestrator.app.fleet.report import results
from orchestrator.app.fleet.up import fleet_up
from orchestrator.app.fleet.usage import fleet_usage
from orchestrator.app.fleet.watch import FleetWatch
from orchestrator.app.init import write_first_files
from orchestrator.app.local import preempt
from orchestrator.app.logs import read_job_log
from orchestrator.app.loop.watch import watch
from orchestrator.app.plan import plan
from orchestrator.app.report import write_report
from orchestrator.app.status.status import newest, open_for_status
from orchestrator.app.up import UpOptions, bring_up
from orchestrator.domain.events import Event
from orchestrator.domain.job_progress import common_step, seconds_remaining
from orchestrator.domain.one_pass import Pass
from orchestrator.engine.fleet import job_store
from orchestrator.errors import TpuctlError
from orchestrator.planning.fleet.fleet_cost import by_user
from orchestrator.planning.fleet.tasks import unfinished

__all__ = ["Event", "JobProgress", "PlanSummary", "TpuFleet", "Tpuctl", "TpuctlError", "new_project"]

Cloud = Literal["gcp", "local"]


@dataclass(frozen=True)
class PlanSummary:
    """
    What `up` would do: one line for each change, and the reason if there is none.

    Prices are in USD per hour for everything that would run; None if a price is unknown.
    """

    changes: tuple[str, ...]
    message: str
    usd_hour: float | None
    on_demand_usd_hour: float | None


@dataclass(frozen=True)
class JobProgress:
    """
    The job's progress by its slowest worker; None for what the job has not reported.

    *incarnation* is the number of the TPU, *usd* an estimate of the cost so far, *eta_s* the seconds
    until the last step, *checkpoint_step* the step of the last checkpoint; *phase* is a word such as setup,
    restore, run or done.
    """

    incarnation: int
    phase: str
    step: int | None
    loss: float | None
    checkpoint_step: int | None
    eta_s: float | None
    usd: float


class _OfFile:
    """The choice of one file, and who is told of events."""

    def __init__(
        self, file: str | Path, *, cloud: Cloud = "gcp", settings: Mapping[str, object] | None = None,
        on_event: Callable[[Event], None] | None = None,
    ) -> None:  # fmt: skip
        pairs = tuple(f"{key}={value}" for key, value in (settings or {}).items())
        self._choice = Choice(Path(file).absolute(), pairs, cloud)
        self._reporter = _Teller(on_event)


class Tpuctl(_OfFile):
    """
    The deployment of a file, with methods like the commands of the same names; *settings* are those of `--set`.

    Methods block until they are done, and raise TpuctlError with code, message and next step. *on_event* is
    called with each event in the method's thread.
    """

    def plan(self, *, offline: bool = False) -> PlanSummary:
        """Return what `up` would change, without changing anything; *offline* assumes that nothing exists yet."""
        shown = plan(self._choice, self._reporter, offline=offline).preview
        found = shown.plan
        changes = tuple(f"{c.verb.word} {c.kind.title} {c.name} in {c.zone}" for c in found.changes)
        message = found.message or "; ".join(found.waiting)
        return PlanSummary(changes, message, shown.hourly.billed_usd, shown.hourly.on_demand_usd)

    def up(self, *, wait: bool = False) -> int:
        """Create what is missing and start the job; return the number of changes. Billing starts here."""
        return bring_up(self._choice, self._reporter, UpOptions(wait=wait)).changes

    def watch(
        self, on_progress: Callable[[JobProgress], None] | None = None, *, stop: threading.Event | None = None
    ) -> bool:
        """
        Replace preempted machines until the job is done; return False if *stop* was set before.

        *on_progress* is called after each pass. Raise TpuctlError for any other end, such as a used-up
        budget.
        """
        wish = stop or threading.Event()
        done = watch(
            self._choice, self._reporter, lambda s: _Screen(on_progress, wish, s.spec.job.target_steps)
        )
        return not done.stopped_by_user

    def status(self, *, fresh: bool = False) -> dict[str, Any]:
        """Return the document of `tpuctl status --json`; *fresh* asks the cloud instead of a running watcher."""
        return newest(open_for_status(self._choice, None, self._reporter), fresh=fresh).as_dict()

    def logs(self, *, worker: int | None = 0) -> list[str]:
        """Return the lines of the job's log so far, across machines; *worker* None means all workers."""
        lines: list[str] = []
        read_job_log(
            self._choice, worker, lambda _i, _w, line: lines.append(line), self._reporter, follow=False
        )
        return lines

    def checkpoints(self, *, verify: bool = False) -> list[dict[str, Any]]:
        """Return the rows of `tpuctl checkpoints list --json`, newest first; *verify* reads all their bytes."""
        rows = list_checkpoints(self._choice, self._reporter, verify=verify).rows
        return [row.as_dict() for row in rows]

    def cost(self) -> dict[str, Any]:
        """Return the document of `tpuctl cost --json`: estimates in USD."""
        return cost_of(self._choice, None, self._reporter).as_dict()

    def fetch(self, folder: str | Path, *, step: int | None = None) -> Path:
        """Download the newest complete checkpoint, or that of *step*, to a new folder, verified; return it."""
        wanted = WantedFiles(step)
        return fetch_files(self._choice, None, wanted, Path(folder), self._reporter).folder

    def report(self, file: str | Path) -> Path:
        """Write the HTML report of the deployment; return its path."""
        return write_report(self._choice, None, Path(file), self._reporter)[0]

    def down(self, *, delete_data: bool = False) -> None:
        """
        Delete the machines and verify that with lists; *delete_data* deletes the bucket too, irrevocably.

        There is no confirmation. Raise LeftoverError if something is left.
        """
        take_down(
            self._choice, self._reporter, lambda _name, _data: None, delete_data=delete_data
        ).raise_leftovers()

    def preempt(self, name: str, *, notice: bool = True) -> None:
        """Preempt a TPU of the local cloud by its name, as Google would; *notice* sends a notice first."""
        preempt(name, None, notice=notice)


class TpuFleet(_OfFile):
    """
    Act on the fleet of a file, as `tpuctl fleet` does; *settings* are those of `--set`.

    Methods block until they are done, and raise TpuctlError. *on_event* gets each event of a node from the
    thread that works on it.
    """

    def up(self) -> tuple[str, ...]:
        """Bring up VM, Slurm and nodes; return the names of the nodes that are up. They are billed from now."""
        return fleet_up(self._choice, self._reporter, lambda _: self._reporter, lambda _: None).nodes_up

    def watch(self, *, stop: threading.Event | None = None) -> None:
        """Replace preempted nodes and keep the queue whole until *stop*, or the end of the budget."""
        loops = FleetWatch(self._choice, self._reporter, lambda _: self._reporter)
        over = threading.Event()

        def wait() -> None:
            while not over.wait(0.2):
                if stop is not None and stop.is_set():
                    loops.stop()

        waiting = threading.Thread(target=wait, name="stop", daemon=True)
        waiting.start()
        try:
            loops.run()
        finally:
            over.set()
        for end in loops.ended:
            if end.error is not None:
                raise end.error

    def submit(self, job: str | Path, *, user: str | None = None, priority: str | None = None) -> int:
        """Submit a job by its file; return how many tasks it has. The same file again changes nothing."""
        return jobs.submit(self._choice, Path(job), self._reporter, user=user, priority=priority).tasks

    def results(self, job: str) -> list[dict[str, Any]]:
        """Return the rows of `tpuctl fleet results --json`: parameters, state, cost, and what tasks have left."""
        return [dict(row) for row in results(self._choice, job, self._reporter).rows]

    def is_over(self, job: str) -> bool:
        """Return whether every task of a job has ended, whatever its end, or was cancelled."""
        store = fleet_to_read(self._choice, self._reporter).head.store
        return not unfinished(submitted_job(store, job), job_store.ended(store, job))

    def cancel(self, which: str, *, user: str | None = None) -> int:
        """End a job, or one task of it (JOB/3), for good; return how many tasks waited or ran."""
        return jobs.cancel(self._choice, which, self._reporter, user)

    def fetch(self, which: str, folder: str | Path) -> dict[int, Path]:
        """Copy the newest checkpoint of each task of a job, or of JOB/3; return the folders by task."""
        found = fetch_checkpoints(self._choice, which, Path(folder), self._reporter)
        return {one.task: one.folder for one in found}

    def cost(self, *, by: Literal["job", "user"] = "job") -> dict[str, float]:
        """Return an estimate in USD for each job or login; what no task had is in parentheses, as `(idle)`."""
        found = fleet_usage(self._choice, self._reporter)
        whose = by_user(found.jobs, found.cost) if by == "user" else found.cost.jobs
        others = {f"({name})": amount for name, amount in found.cost.others.items()}
        return {name: amount.usd for name, amount in {**whose, **others}.items()}

    def down(self, *, delete_data: bool = False) -> None:
        """
        Delete nodes and VM and verify it by lists; with *delete_data* the bucket too, which cannot be undone.

        Asks no question. Raise LeftoverError when something is left.
        """
        fleet_down(
            self._choice, self._reporter, lambda _: self._reporter, lambda _name, _data: None,
            delete_data=delete_data,
        ).raise_leftovers()  # fmt: skip


def new_project(folder: str | Path, *, recipe: str | None = None, name: str | None = None) -> Path:
    """Write a commented deployment file, or copy a *recipe*; return the deployment file's path."""
    return write_first_files(Path(folder), recipe, name).file


class _Teller(Reporter):
    """Passes each event to the program; a question is never asked."""

    def __init__(self, on_event: Callable[[Event], None] | None) -> None:
        self._on_event = on_event

    def __call__(self, event: Event) -> None:
        if self._on_event is not None:
            self._on_event(event)


class _Screen:
    """Turns each pass into progress, and the program's *stop* into the end of the watch."""

    def __init__(
        self, on_progress: Callable[[JobProgress], None] | None, wish: threading.Event, target: int | None
    ) -> None:
        self._on_progress = on_progress
        self._wish = wish
        self._target = target
        self._stop: Callable[[], None] = lambda: None

    def show(self, result: Pass, usd: float, upper_usd: float) -> None:
        """Call *on_progress* with the progress of the slowest worker, once a worker has reported."""
        heartbeats = result.world.known_heartbeats
        if heartbeats and self._on_progress is not None:
            last = min(heartbeats, key=lambda heartbeat: heartbeat.step or 0)
            seconds = seconds_remaining(heartbeats, self._target)
            self._on_progress(
                JobProgress(
                    last.incarnation,
                    last.phase.value,
                    last.step,
                    last.loss,
                    common_step(heartbeats),
                    seconds,
                    usd,
                )
            )
        if self._wish.is_set():
            self._stop()

    @contextmanager
    def graceful_stop(self, stop: Callable[[], None]) -> Iterator[None]:
        """Keep *stop*, which ends the watch after the current pass."""
        self._stop = stop
        yield
