"""tpuctl report: the story of a deployment as one HTML page."""

from pathlib import Path

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import print_json, say
from orchestrator.cli.options import Command, deployment_options, name_argument, output_option


@click.command("report", cls=Command)
@deployment_options
@output_option("NAME-report.html")
@name_argument
def command(choice: Choice, output: Path | None, name: str | None) -> None:
    """
    Write one HTML page: what each machine did, the loss, where time and money went, and all events.

    The page holds everything itself and needs no network. NAME is a deployment that this computer has brought
    up; without it, the one of the deployment file.
    """
    from orchestrator.app.report import write_report
    from orchestrator.cli.views.event_lines import EventPrinter

    path, facts = write_report(choice, name, output, EventPrinter())
    if choice.as_json:
        body = {"name": facts.status["name"], "file": str(path), "events": len(facts.events)}
        print_json("report", {**body, "summary": facts.summary.as_dict()})
    else:
        say(f"{path}: open it in a browser; it needs no network", style="green")
