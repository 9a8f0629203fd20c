"""Serve the report as a page that refreshes itself, on this computer only and protected by a token."""

import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from orchestrator.app.context.choice import Choice
from orchestrator.app.context.reporter import Reporter
from orchestrator.app.deployment.expired import end_expired
from orchestrator.app.deployment.session import Session, open_session
from orchestrator.app.report import ReportCache, facts_of
from orchestrator.app.status.all_deployments import Deployments
from orchestrator.clock import SystemClock
from orchestrator.domain.text.clean_text import cut
from orchestrator.errors import UsageError
from orchestrator.report.page import LiveFacts, PageFacts, page

MAX_LINE = 400
"""Characters of a log line that are shown."""
NEIGHBOURS_SECONDS = 15.0
"""Seconds between two observations of all deployments; one without a watcher needs several requests."""


def serve_dashboard(
    choice: Choice, name: str | None, port: int, ready: Callable[[str, int], None],
    failed: Callable[[Exception], None], reporter: Reporter,
) -> None:  # fmt: skip
    """
    Serve the page until Ctrl-C; *port* 0 takes a free one. *ready* gets its address and port.

    *failed* gets the error when a page cannot be made; the next request tries again. Raise UsageError.
    """
    try:
        import uvicorn  # Imported here: it is an extra that most installations lack.

        from orchestrator.report.dashboard_app import Dashboard
    except ImportError as error:
        raise UsageError(
            f"the dashboard needs {error.name}", hint="pip install 'tpuctl[dashboard]'",
            changed="nothing was changed", code="TPU-138",
        ) from error  # fmt: skip
    pages = Pages(choice, name, reporter)
    pages.first()
    others = Neighbours(choice, failed)
    threading.Thread(target=others.follow, name="deployments", daemon=True).start()

    def fresh(wanted: str) -> str:
        facts, live = pages.observe(wanted)
        return page(facts, replace(live, deployments=others.rows))

    with listening(port) as listener:
        app = Dashboard(fresh, listener.getsockname()[1], failed)
        ready(app.url, app.port)
        # No access log, as URLs contain the token.
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, lifespan="off", server_header=False, ws="none"
        )
        uvicorn.Server(config).run(sockets=[listener])


class Pages:
    """Observes the deployment of the command line, or by name any other of this computer."""

    def __init__(self, choice: Choice, name: str | None, reporter: Reporter) -> None:
        self._choice, self._name, self._reporter = choice, name, reporter
        self._open: dict[str, tuple[Session, ReportCache]] = {}

    def first(self) -> None:
        """Observe once before serving, so that an error appears on the terminal."""
        session, cache = self._opened("")
        end_expired(session)
        facts_of(session, cache)

    def observe(self, wanted: str) -> tuple[PageFacts, LiveFacts]:
        """Return the facts for the page of *wanted*; "" means the deployment of the command line."""
        session, cache = self._opened(wanted)
        # Read again: a watcher may have requested another TPU since the last request.
        session.records.load()
        log = tuple(cut(line, MAX_LINE) for line in cache.tail.read())
        return facts_of(session, cache), LiveFacts(log, shown=session.spec.name)

    def _opened(self, wanted: str) -> tuple[Session, ReportCache]:
        if wanted not in self._open:
            session = open_session(self._choice, wanted or self._name, self._reporter, only_observes=True)
            self._open[wanted] = session, ReportCache(session.store)
        return self._open[wanted]


class Neighbours:
    """The states of all deployments of this computer, as in `status --all -f`; *rows* are empty at first."""

    def __init__(self, choice: Choice, failed: Callable[[Exception], None]) -> None:
        self._deployments = Deployments(choice)
        self._failed = failed
        self._clock = SystemClock()
        self.rows: Sequence[Mapping[str, Any]] = ()

    def follow(self) -> None:
        """Observe repeatedly in a thread, so that a deployment that does not answer delays no page."""
        while True:
            try:
                self.rows = [one.as_dict() for one in self._deployments.rows()]
            except Exception as error:  # A bug; the page keeps the rows that it has.
                self._failed(error)
            # A daemon thread, which the end of the process may interrupt here.
            self._clock.wait(NEIGHBOURS_SECONDS)


def listening(port: int) -> socket.socket:
    """Return a socket that listens on the loopback address only. Raise UsageError if the port is in use."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # The port of a dashboard that has just ended is in TIME_WAIT.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {port} of this computer cannot be used: {error.strerror}", hint="choose another --port",
            changed="nothing was changed", code="TPU-135",
        ) from error  # fmt: skip
    return listener
