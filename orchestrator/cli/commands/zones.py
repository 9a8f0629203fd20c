"""tpuctl zones: which zones offer which types of TPU, and at which prices."""

import click

from orchestrator.cli.options import Command, cloud_option, json_option


@click.command("zones", cls=Command)
@cloud_option
@json_option
@click.argument("wanted", metavar="[TYPE]", required=False)
def command(wanted: str | None, cloud: str, as_json: bool) -> None:
    """
    List the zones of TYPE with its price an hour, or of all types with the price of a chip. No network.

    TYPE may also be a generation, such as v5e: its types, and its zones with the price of a chip. From the
    shipped tables, or the prices of `tpuctl prices refresh`. Whether a zone has one free, and what your
    project's quota is, no table knows: `tpuctl doctor` shows the quota.
    """
    from orchestrator.app.zones import list_zones
    from orchestrator.cli.views import zones as view

    view.show(list_zones(cloud, wanted), as_json=as_json)
