"""tpuctl explain: why the deployment is in its state."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, name_argument


@click.command("explain", cls=Command)
@deployment_options
@name_argument
def command(choice: Choice, name: str | None) -> None:
    """
    Say why the deployment is in its state: what was seen, which rule decided, what comes next and when.

    NAME is a deployment that this computer has brought up; without it, the one of the deployment file.
    """
    from orchestrator.app.explain import explain_deployment
    from orchestrator.cli.views import explain
    from orchestrator.cli.views.event_lines import EventPrinter

    explain.show(explain_deployment(choice, name, EventPrinter()), as_json=choice.as_json)
