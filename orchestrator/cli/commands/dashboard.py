"""tpuctl dashboard: the report as a page that renews itself, on this computer only."""

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import print_json, say, story_of
from orchestrator.cli.options import Command, deployment_options, name_argument
from orchestrator.contract.redaction import masked


@click.command("dashboard", cls=Command)
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
    from orchestrator.app.dashboard import serve_dashboard
    from orchestrator.cli.views.event_lines import EventPrinter

    def ready(url: str, port: int) -> None:
        if choice.as_json:
            print_json("dashboard", {"url": url, "port": port})
            return
        say(url)
        say("  Ctrl-C ends it; the address is good for this run only")

    serve_dashboard(choice, name, port, ready, Bugs(), EventPrinter())


class Bugs:
    """Say each bug once: the page asks again every few seconds, and would fail in the same way."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, error: Exception) -> None:
        """Say it in one line, with the file that holds the whole story."""
        what = masked(f"{type(error).__name__}: {error}")
        if what != self._said:
            say(f"the page could not be made, this is a bug in tpuctl: {what} (see {story_of(error)})")
        self._said = what
