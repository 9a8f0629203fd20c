"""tpuctl check: what is likely to go wrong on a TPU, before money is spent."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options


@click.command("check", cls=Command)
@deployment_options
def command(choice: Choice) -> None:
    """
    Look through the deployment file and the code for what costs data, time or money on a TPU.

    Needs no credentials and no network, and starts nothing. Exits with 2 if a finding has the level `stop`.
    """
    from orchestrator.app.check import check
    from orchestrator.cli.views import check as view

    checked = check(choice)
    view.show(checked, as_json=choice.as_json)
    if checked.stops:
        # 2, not 1, so that scripts can tell a "stop" finding from a check that failed.
        raise click.exceptions.Exit(2)
