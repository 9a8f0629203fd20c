"""tpuctl zones: which zones offer which types of TPU, and at which prices."""

import click

from orchestrator.cli.options import Command, cloud_option, json_option
from orchestrator.errors import UsageError

ALL = "all types: tpuctl zones"


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
    from orchestrator.app.prices import catalog_for
    from orchestrator.cli.views import zones as view
    from orchestrator.domain.text.suggest import did_you_mean, join

    catalog = catalog_for(cloud)
    tpu_type = wanted if wanted in catalog.served() else None
    generation = "" if wanted is None or tpu_type else catalog.generation(wanted)
    if wanted is not None and not tpu_type and not generation:
        # Some write a generation without its letter, such as v5.
        near = [one for one in catalog.generations() if one.startswith(wanted.lower()) and wanted]
        raise UsageError(
            f'"{wanted[:60]}" is not a type of the Cloud TPU API, nor a generation of them',
            hint=f"did you mean {join(near)}?" if near else did_you_mean(wanted, catalog.served()) or ALL,
            changed="nothing was changed",
        )
    view.show(catalog, tpu_type or "", generation, as_json=as_json)
