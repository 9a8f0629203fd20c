"""tpuctl report: the story of a deployment as one HTML page, or as a page that renews itself."""

from functools import partial
from pathlib import Path

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import (
    Command,
    deployment_options,
    exclusive,
    name_argument,
    needs,
    output_option,
)


@click.command("report", cls=Command)
@deployment_options
@output_option("NAME-report.html")
@click.option("--live", is_flag=True, help="Show it in a browser, renewed every few seconds, until Ctrl-C.")
@click.option(
    "--port", type=click.IntRange(0, 65535), help="With --live: port on 127.0.0.1.  [default: a free one]"
)
@name_argument
@exclusive("--output", "--live", hint="for a file: tpuctl report --output FILE")
@needs("--port", "--live", hint="tpuctl report --live --port PORT")
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
    from orchestrator.cli.views import report as view
    from orchestrator.cli.views.event_lines import EventPrinter

    if live:
        ready = partial(view.show_address, as_json=choice.as_json)
        serve_dashboard(choice, name, port or 0, ready, view.Bugs(), EventPrinter())
        return
    path, facts = write_report(choice, name, output, EventPrinter())
    view.show(path, facts, as_json=choice.as_json)
