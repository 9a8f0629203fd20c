"""tpuctl cost: what the deployment has cost, and for what."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, name_argument


@click.command("cost", cls=Command)
@deployment_options
@name_argument
def command(choice: Choice, name: str | None) -> None:
    """
    Show what the deployment has cost: by resource, zone, day (UTC) and use, and what preemptions took.

    NAME is a deployment that this computer has brought up; without it, the one of the deployment file.
    An estimate from the price tables, not a bill. Of storage it counts what the bucket holds now, since it
    was written; deleted files, requests and traffic are not in it, nor an adopted bucket.
    """
    from orchestrator.app.cost import cost_of
    from orchestrator.cli.views import cost as view
    from orchestrator.cli.views.event_lines import EventPrinter

    found = cost_of(choice, name, EventPrinter())
    view.show(found, unbilled=choice.cloud == "local", as_json=choice.as_json)
