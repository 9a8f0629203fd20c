"""tpuctl zones: which zones offer which types of TPU, and at which prices."""

import click

from orchestrator.cli.options import Command, cloud_option, json_option
from orchestrator.errors import UsageError


@click.command("zones", cls=Command)
@cloud_option
@json_option
@click.argument("tpu_type", metavar="[TYPE]", required=False)
def command(tpu_type: str | None, cloud: str, as_json: bool) -> None:
    """
    List the zones of TYPE with its price an hour, or of all types with the price of a chip. No network.

    From the shipped tables, or the prices of `tpuctl prices refresh`. Whether a zone has one free, and what
    your project's quota is, no table knows: `tpuctl doctor` shows the quota.
    """
    from orchestrator.app.prices import catalog_for
    from orchestrator.cli.views import zones as view
    from orchestrator.domain.text.suggest import did_you_mean

    catalog = catalog_for(cloud)
    if tpu_type is not None and tpu_type not in catalog.served():
        raise UsageError(
            f'"{tpu_type[:60]}" is not a type of the Cloud TPU API',
            hint=did_you_mean(tpu_type, catalog.served()) or "all types: tpuctl zones",
            changed="nothing was changed",
        )
    view.show(catalog, tpu_type or "", as_json=as_json)
