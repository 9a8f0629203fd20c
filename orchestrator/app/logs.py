"""The job's log, and the controller's, from the bucket: they outlive the machines that wrote them."""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import chain

from orchestrator.app.choice import Choice
from orchestrator.app.outage import Outage
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import Session
from orchestrator.domain.events import Event
from orchestrator.engine.event_log import new_events
from orchestrator.engine.job_logs import JobLog
from orchestrator.errors import Retry, TpuctlError

FOLLOW_SECONDS = 2.0


def read_job_log(
    choice: Choice, worker: int | None, show: Callable[[int, int, str], None], reporter: Reporter, *,
    follow: bool, tail: int | None = None, seconds: float | None = None,
) -> bool:  # fmt: skip
    """
    Give each line of one worker, or of all when *worker* is None, to *show* with incarnation and worker.

    Of what is there already only the last *tail* lines, and only parts that were added to in the last *seconds*.
    Return whether there was any. With *follow* it goes on until the deployment is over.
    """
    session = Session(choice, reporter, only_looks=True)
    log = JobLog(session.store, worker, _since(session, seconds))
    found = False
    first = True

    def give(lines: Iterable[tuple[int, int, str]]) -> None:
        nonlocal found
        for line in lines:
            found = True
            show(*line)

    def look() -> None:
        nonlocal first
        lines: Iterable[tuple[int, int, str]] = log.new_lines()
        if first and tail is not None:
            # Without --follow a line that no end has closed is one of the last, too.
            rest = () if follow else log.unfinished()
            lines = deque(chain(lines, rest), maxlen=tail)
        first = False
        give(lines)

    _until_over(session, look, follow=follow)
    if follow or tail is None:
        give(log.unfinished())
    return found


def _since(session: Session, seconds: float | None) -> float:
    return 0.0 if seconds is None else session.clock.now() - seconds


def read_events_of(
    choice: Choice, show: Callable[[Event], None], reporter: Reporter, *, follow: bool,
    tail: int | None = None, seconds: float | None = None,
) -> None:  # fmt: skip
    """Give what tpuctl did to *show*, wherever its loop ran; *tail* and *seconds* as for the job's log."""
    session = Session(choice, reporter, only_looks=True)
    shown: set[str] = set()
    since, most = _since(session, seconds), tail

    def give() -> None:
        nonlocal most
        events = [event for event in new_events(session.store, shown) if event.at >= since]
        for event in events if most is None else deque(events, maxlen=most):
            show(event)
        most = None

    _until_over(session, give, follow=follow)


def _until_over(session: Session, give: Callable[[], None], *, follow: bool) -> None:
    """
    Give what there is, and with *follow* go on until the deployment is over.

    A bucket that does not answer for a moment is asked again; machines may come and go meanwhile.
    """
    outage = Outage(session.clock, FOLLOW_SECONDS, session.reporter.say)
    while True:
        try:
            # Asked before the lines are read: the last ones are in the bucket before the end is known.
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
