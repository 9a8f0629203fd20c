"""tpuctl dashboard: the report as a page that renews itself, on this computer only."""

import socket

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options, name_argument
from orchestrator.errors import UsageError


@click.command("dashboard")
@deployment_options
@click.option(
    "--port", type=click.IntRange(0, 65535), default=0, help="Port on 127.0.0.1.  [default: a free one]"
)
@name_argument
def command(choice: Choice, port: int, name: str | None) -> None:
    """
    Show the report in a browser, renewed every few seconds, until Ctrl-C.

    It is served at 127.0.0.1 only, to whoever has the token in the printed address. Nothing can be changed
    through it, and nothing runs on afterwards. NAME is a deployment that this computer has brought up.
    """
    from orchestrator.app.expired import sweep_expired
    from orchestrator.app.known import open_session
    from orchestrator.cli.commands.report import Memory, facts_of
    from orchestrator.cli.console import print_json, say
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.report.page import page

    try:
        import uvicorn

        from orchestrator.report.dashboard import Dashboard
    except ImportError as error:
        raise UsageError(
            f"the dashboard needs {error.name}", hint="pip install 'tpuctl[dashboard]'",
            unchanged="nothing was changed", code="TPU-138",
        ) from error  # fmt: skip
    session = open_session(choice, name, EventPrinter(), only_looks=True)
    sweep_expired(session)
    memory = Memory(session.store)
    facts_of(session, memory)

    def fresh() -> str:
        session.records.load()
        return page(facts_of(session, memory), live=True)

    with _listening(port) as listener:
        app = Dashboard(fresh, listener.getsockname()[1], Bugs())
        if choice.as_json:
            print_json("dashboard", {"url": app.url, "port": app.port})
        else:
            say(f"{app.url}")
            say("  Ctrl-C ends it; the address is good for this run only")
        config = uvicorn.Config(
            app, log_level="critical", access_log=False, lifespan="off", server_header=False, ws="none"
        )
        uvicorn.Server(config).run(sockets=[listener])


class Bugs:
    """Say each bug once: the page asks again every few seconds, and would fail in the same way."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, error: Exception) -> None:
        """Say it in one line, with the file that holds the whole story."""
        from orchestrator.cli.console import say, story_of
        from orchestrator.contract.redaction import masked

        what = masked(f"{type(error).__name__}: {error}")
        if what != self._said:
            say(f"the page could not be made, this is a bug in tpuctl: {what} (see {story_of(error)})")
        self._said = what


def _listening(port: int) -> socket.socket:
    """Return a socket that listens on this computer alone; raise UsageError when the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen()
    except OSError as error:
        listener.close()
        raise UsageError(
            f"port {port} of this computer cannot be used: {error.strerror}", hint="choose another --port",
            unchanged="nothing was changed", code="TPU-135",
        ) from error  # fmt: skip
    return listener
