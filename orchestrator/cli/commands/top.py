"""tpuctl top: all deployments that this computer has brought up, live."""

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import Command, cloud_option, json_option


@click.command("top", cls=Command)
@cloud_option
@json_option
@click.option("--once", is_flag=True, help="Look once and leave.")
def command(cloud: str, as_json: bool, once: bool) -> None:
    """
    Show all deployments that this computer has brought up: TPU, job, checkpoint, preemptions and cost.

    The last look of a watcher is shown where there is one; otherwise the cloud is asked. Keys on a terminal:
    arrows select, Enter shows the details, s sorts by the next column, r reverses the order, q ends it.
    """
    from orchestrator.cli.views.top import show_all

    show_all(Choice(None, (), cloud, as_json), watch=not once)
