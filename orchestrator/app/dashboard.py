"""The report as a page that renews itself: served on this computer only, to whoever has the token."""

import socket
from collections.abc import Callable

from orchestrator.app.choice import Choice
from orchestrator.app.expired import sweep_expired
from orchestrator.app.report import ReportMemory, facts_of
from orchestrator.app.reporter import Reporter
from orchestrator.app.session import open_session
from orchestrator.errors import UsageError
from orchestrator.report.page import page


def serve_dashboard(
    choice: Choice, name: str | None, port: int, ready: Callable[[str, int], None],
    failed: Callable[[Exception], None], reporter: Reporter,
) -> None:  # fmt: skip
    """
    Serve the page until Ctrl-C; *port* 0 takes a free one. *ready* gets its address and port.

    *failed* is told when the page cannot be made; the next request tries again.
    """
    try:
        import uvicorn  # An extra: most do without a dashboard.

        from orchestrator.report.dashboard import Dashboard
    except ImportError as error:
        raise UsageError(
            f"the dashboard needs {error.name}", hint="pip install 'tpuctl[dashboard]'",
            changed="nothing was changed", code="TPU-138",
        ) from error  # fmt: skip
    session = open_session(choice, name, reporter, only_looks=True)
    sweep_expired(session)
    memory = ReportMemory(session.store)
    facts_of(session, memory)

    def fresh() -> str:
        # A watcher goes on meanwhile: it may have asked for another TPU since the last request.
        session.records.load()
        return page(facts_of(session, memory), live=True)

    with listening(port) as listener:
        app = Dashboard(fresh, listener.getsockname()[1], failed)
        ready(app.url, app.port)
        # No access log: the token stands in the addresses.
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, lifespan="off", server_header=False, ws="none"
        )
        uvicorn.Server(config).run(sockets=[listener])


def listening(port: int) -> socket.socket:
    """Return a socket that listens on this computer alone; raise UsageError when the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    # A dashboard that has just ended leaves its port in TIME_WAIT.
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
