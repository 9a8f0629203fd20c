"""Read the job's log and the events from the bucket, where they outlive the machines."""

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.outage import Outage
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.earlier_costs import last_cost, naming_deletion, open_named
from orchestrator.app.deployment.session import Session
from orchestrator.app.machines.workers import existing_workers
from orchestrator.domain.events import Event
from orchestrator.engine.bucket.job_logs import JobLogReader, log_segments
from orchestrator.engine.publish.event_log import new_events
from orchestrator.errors import NotFoundError, Retry, TpuctlError, UsageError
from orchestrator.planning.deployment_state import was_started
from orchestrator.planning.tpu.tpu_types import most_workers

FOLLOW_SECONDS = 2.0
"""Seconds between two reads of the log, which machines write every few seconds."""


@dataclass(frozen=True)
class LogRead:
    """
    What there was to read: whether any line, and whether `down` has deleted the machines that wrote it.

    *older* says that there is a log, to which nothing was added in the time that was asked for.
    """

    found: bool
    deleted: bool
    older: bool = False


def read_job_log(
    choice: Choice, worker: int | None, show: Callable[[int, int, str], None], reporter: Reporter, *,
    name: str | None = None, follow: bool, tail: int | None = None, seconds: float | None = None,
) -> LogRead:  # fmt: skip
    """
    Pass each log line of *worker* (None: all) to *show*, with incarnation and worker.

    *tail* limits the existing lines to the last ones, *seconds* to parts written within that time. *follow*
    continues until the deployment is over. Raise UsageError for a worker that has written nothing and that no
    TPU of the deployment file has.
    """
    session = open_named(choice, name, reporter, "show", only_observes=True)
    log = JobLogReader(session.store, worker, _since(session, seconds))
    found = False
    first = True

    def give(lines: Iterable[tuple[int, int, str]]) -> None:
        nonlocal found
        for line in lines:
            found = True
            show(*line)

    def show_new() -> None:
        nonlocal first
        lines: Iterable[tuple[int, int, str]] = log.new_lines()
        if first and tail is not None:
            # Without --follow an unfinished last line is shown, too.
            rest = () if follow else log.unfinished()
            lines = deque(chain(lines, rest), maxlen=tail)
        give(lines)
        if first and not found:
            _refuse_missing(session, worker)
        first = False

    with naming_deletion(session, "show"), _naming_not_up(session):
        _until_over(session, show_new, follow=follow)
    if follow or tail is None:
        give(log.unfinished())
    record = session.records.current
    older = not found and seconds is not None and bool(log_segments(session.store, worker))
    return LogRead(found, deleted=not record.job.bundle and was_started(record), older=older)


@contextmanager
def _naming_not_up(session: Session) -> Iterator[None]:
    """Replace a NotFoundError of the bucket by one that says that the deployment is not up, if it never was."""
    try:
        yield
    except NotFoundError as error:
        record = session.records.current
        if record.started_at or record.spans or last_cost(session, record) is not None:
            raise
        raise UsageError(
            f"{session.spec.name} is not up: it has no log", hint="run: tpuctl up",
            changed="nothing was changed", code="TPU-130",
        ) from error  # fmt: skip


def _refuse_missing(session: Session, worker: int | None) -> None:
    most = most_workers(session.spec, session.catalog)
    if worker is not None and not 0 <= worker < most:
        raise UsageError(
            f"--worker {worker}: {existing_workers(most)}", hint="see: tpuctl status",
            changed="nothing was changed", code="TPU-132",
        )  # fmt: skip


def _since(session: Session, seconds: float | None) -> float:
    return 0.0 if seconds is None else session.clock.now() - seconds


def read_events_of(
    choice: Choice, show: Callable[[Event], None], reporter: Reporter, *,
    name: str | None = None, follow: bool, tail: int | None = None, seconds: float | None = None,
) -> None:  # fmt: skip
    """Pass tpuctl's own events to *show*, wherever its loop ran; *tail* and *seconds* as in `read_job_log`."""
    session = open_named(choice, name, reporter, "show", only_observes=True)
    shown: set[str] = set()
    since, most = _since(session, seconds), tail

    def give() -> None:
        nonlocal most
        events = [event for event in new_events(session.store, shown) if event.at >= since]
        for event in events if most is None else deque(events, maxlen=most):
            show(event)
        most = None

    with naming_deletion(session, "show"), _naming_not_up(session):
        _until_over(session, give, follow=follow)


def _until_over(session: Session, give: Callable[[], None], *, follow: bool) -> None:
    """Call *give* once or, with *follow*, until the deployment is over; retry while the bucket does not answer."""
    outage = Outage(session.clock, FOLLOW_SECONDS, session.reporter.say)
    while True:
        try:
            # Read before the lines: when the end is recorded, the last lines are already in the bucket.
            over = not follow or bool(session.records.load().outcome)
            give()
        except TpuctlError as error:
            if not follow or error.retry is not Retry.TRANSIENT:
                raise
            outage.failed(error)
            continue
        outage.over()
        if over:
            return
        session.clock.wait(FOLLOW_SECONDS)
