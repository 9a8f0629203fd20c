"""tpuctl prices: what TPUs cost today, from the billing catalogue."""

import click

from orchestrator.cli.options import Command, cloud_option, json_option


@click.group("prices")
def command() -> None:
    """Update the prices of TPUs; until then the shipped tables are used."""


@command.command("refresh", cls=Command, short_help="Read today's prices, and use them from now on.")
@click.option("--project", help="Project that the reading is charged to; it costs nothing.")
@cloud_option
@json_option
def refresh(project: str | None, cloud: str, as_json: bool) -> None:
    """
    Read the prices of TPUs from Google's billing catalogue, and use them from now on.

    It needs a login and the API cloudbilling.googleapis.com. What the catalogue does not have keeps the
    shipped price; VMs, disks and storage keep theirs. Where it cannot be read, nothing changes.
    """
    from orchestrator.app.prices import refresh_prices
    from orchestrator.cli.views import prices as view

    view.show(refresh_prices(project, cloud), as_json=as_json)
