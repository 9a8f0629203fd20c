"""The job's log, and the controller's, from the bucket: they outlive the machines that wrote them."""

from collections.abc import Callable, Iterable

from orchestrator.app.choice import Choice
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.domain.events import Event
from orchestrator.engine.event_log import new_events
from orchestrator.engine.job_logs import JobLog
from orchestrator.errors import Retry, TpuctlError

FOLLOW_SECONDS = 2.0


def read_job_log(
    choice: Choice, worker: int | None, show: Callable[[int, int, str], None], reporter: Reporter, *,
    follow: bool,
) -> bool:  # fmt: skip
    """
    Give each line of one worker, or of all when *worker* is None, to *show* with incarnation and worker.

    Return whether there was any. With *follow* it goes on until the deployment is over.
    """
    session = Session(choice, reporter, only_looks=True)
    log = JobLog(session.store, worker)
    found = False

    def give(lines: Iterable[tuple[int, int, str]]) -> None:
        nonlocal found
        for line in lines:
            found = True
            show(*line)

    _until_over(session, lambda: give(log.new_lines()), follow=follow)
    give(log.unfinished())
    return found


def read_events_of(
    choice: Choice, show: Callable[[Event], None], reporter: Reporter, *, follow: bool
) -> None:
    """Give what tpuctl did to *show*, wherever its loop ran."""
    session = Session(choice, reporter, only_looks=True)
    shown: set[str] = set()

    def give() -> None:
        for event in new_events(session.store, shown):
            show(event)

    _until_over(session, give, follow=follow)


def _until_over(session: Session, give: Callable[[], None], *, follow: bool) -> None:
    """
    Give what there is, and with *follow* go on until the deployment is over.

    A bucket that does not answer for a moment is asked again; machines may come and go meanwhile.
    """
    troubled = ""
    while True:
        try:
            # Asked before the lines are read: the last ones are in the bucket before the end is known.
            over = not follow or bool(session.records.load().outcome)
            give()
            troubled = ""
        except TpuctlError as error:
            if not follow or error.retry is not Retry.TRANSIENT:
                raise
            if error.message != troubled:
                session.reporter.say(f"{error.message} ({error.code}); trying again")
            troubled, over = error.message, False
        if over:
            return
        session.clock.wait(FOLLOW_SECONDS)
