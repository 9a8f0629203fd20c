"""tpuctl report: the story of a deployment as one HTML page, or as a page that renews itself."""

from pathlib import Path

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import print_json, say, story_of, talk
from orchestrator.cli.options import Command, deployment_options, name_argument, output_option
from orchestrator.contract.redaction import masked
from orchestrator.errors import UsageError


@click.command("report", cls=Command)
@deployment_options
@output_option("NAME-report.html")
@click.option("--live", is_flag=True, help="Show it in a browser, renewed every few seconds, until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="With --live: port on 127.0.0.1.  [default: a free one]"
)
@name_argument
def command(choice: Choice, output: Path | None, live: bool, port: int | None, name: str | None) -> None:
    """
    Write one HTML page: what each machine did, the loss, where time and money went, and all events.

    The page holds everything itself and needs no network. NAME is a deployment that this computer has brought
    up; without it, the one of the deployment file.

    With --live the page is served at 127.0.0.1 only, to whoever has the token in the printed address. Nothing
    can be changed through it, and nothing runs on afterwards.
    """
    from orchestrator.app.loop.dashboard import serve_dashboard
    from orchestrator.app.report import write_report
    from orchestrator.cli.views.event_lines import EventPrinter

    if live and output:
        raise UsageError("--output does not go with --live", hint="tpuctl report --output FILE")
    if port is not None and not live:
        raise UsageError("--port goes with --live", hint="tpuctl report --live --port PORT")

    def ready(url: str, port: int) -> None:
        if choice.as_json:
            print_json("dashboard", {"url": url, "port": port})
            return
        say(url)
        talk("  Ctrl-C ends it; the address is good for this run only")

    if live:
        serve_dashboard(choice, name, port or 0, ready, Bugs(), EventPrinter())
        return
    path, facts = write_report(choice, name, output, EventPrinter())
    if choice.as_json:
        body = {"name": facts.status["name"], "file": str(path), "events": len(facts.events)}
        print_json("report", {**body, "summary": facts.summary.as_dict()})
    else:
        say(f"{path}: open it in a browser; it needs no network", style="green")


class Bugs:
    """Reports each bug once, because the page reloads every few seconds and fails in the same way."""

    def __init__(self) -> None:
        self._said = ""

    def __call__(self, error: Exception) -> None:
        """Report the bug in one line, with the file of its traceback."""
        what = masked(f"{type(error).__name__}: {error}")
        if what != self._said:
            say(f"the page could not be made, this is a bug in tpuctl: {what} (see {story_of(error)})")
        self._said = what
