"""tpuctl prices: what TPUs cost today, from the billing catalogue."""

import json
from typing import TYPE_CHECKING, Any

import click

from orchestrator.cli.options import cloud_option, json_option
from orchestrator.private_folders import private_folder

if TYPE_CHECKING:
    from orchestrator.google.clients import Clients
    from orchestrator.pricing.skus import Place


@click.group("prices")
def command() -> None:
    """Read the prices of TPUs anew; the shipped tables are used until then."""


@command.command("refresh")
@click.option("--project", help="Project that the reading is charged to; it costs nothing.")
@cloud_option
@json_option
def refresh(project: str | None, cloud: str, as_json: bool) -> None:
    """
    Read the prices of TPUs from Google's billing catalogue, and use them from now on.

    It needs a login and the API cloudbilling.googleapis.com. What the catalogue does not have keeps the
    shipped price; VMs, disks and storage keep theirs. Where it cannot be read, nothing changes.
    """
    from datetime import datetime, timezone

    from orchestrator.app.price_cache import body_of, cache_file
    from orchestrator.cli.console import print_json, say
    from orchestrator.engine.atomic_files import write_atomically
    from orchestrator.errors import NotFoundError
    from orchestrator.google.billing_catalog import read_skus
    from orchestrator.pricing.skus import prices_of

    found = prices_of(read_skus(_clients(project, cloud)))
    if not found:
        raise NotFoundError(
            "the billing catalogue lists no price of a TPU that tpuctl understands",
            hint="please report it; the prices of before are used",
            unchanged="no price was changed",
        )
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    path = cache_file(cloud)
    private_folder(path.parent)
    write_atomically(path, json.dumps(body_of(found, date), indent=1).encode())
    if as_json:
        print_json("prices", {"date": date, "file": str(path), "prices": _rows(found)})
        return
    say(f"{len(found)} prices of TPUs of {date}, from the billing catalogue, are used from now on ({path})")
    say("  next:  tpuctl plan shows them")


def _rows(found: "dict[Place, Any]") -> list[dict[str, Any]]:
    return [
        {
            "generation": generation, "region": region, "several_hosts": several,
            "ondemand_usd_chip_hour": price.ondemand, "spot_usd_chip_hour": price.spot,
        }
        for (generation, region, several), price in found.items()
    ]  # fmt: skip


def _clients(project: str | None, cloud: str) -> "Clients":
    from orchestrator.google.clients import Clients, CloudSettings

    if cloud == "local":
        from orchestrator.app.local import ensure_running
        from orchestrator.emulator.address import address_on_machine
        from orchestrator.emulator.own_server import adapter_for

        address = address_on_machine() or ensure_running()[0]
        return Clients(CloudSettings(address.project, address.endpoint, adapter=adapter_for(address)))
    return Clients(CloudSettings(project=project or ""))
