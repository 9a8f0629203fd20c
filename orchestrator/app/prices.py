"""Provide prices of TPUs: stored by `tpuctl prices refresh`, else the shipped tables."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from orchestrator.app.context.clouds import clients_of
from orchestrator.app.this_computer.state_folders import state_folder
from orchestrator.config.shipped_catalog import shipped_catalog, use_catalog
from orchestrator.domain.catalog import Catalog, Price
from orchestrator.engine.records.atomic_files import write_private
from orchestrator.errors import NotFoundError
from orchestrator.google.billing_catalog import read_skus
from orchestrator.pricing.skus import prices_of
from orchestrator.private_folders import private_folder

SCHEMA = 1
Found = Mapping[tuple[str, str, bool], Price]


def cache_file(cloud: str) -> Path:
    """Return the file of refreshed prices, one for each cloud."""
    return state_folder(cloud) / "prices.json"


def body_of(found: Found, date: str) -> dict[str, Any]:
    """Return the stored form of refreshed prices."""
    rows = [[*place, price.on_demand, price.spot] for place, price in found.items()]
    return {"schema": SCHEMA, "date": date, "prices": rows}


def catalog_for(cloud: str) -> Catalog:
    """
    Return the catalogue with the refreshed prices of a cloud, for all of this process.

    An unreadable file is ignored, so the shipped prices apply.
    """
    shipped = shipped_catalog()
    try:
        body = json.loads(cache_file(cloud).read_bytes())
        # A file of another version is ignored, as its rows may have another meaning.
        rows = {SCHEMA: body["prices"]}[body["schema"]]
        found = {
            (str(kind), str(region), bool(several)): Price(_price(on_demand), _price(spot))
            for kind, region, several, on_demand, spot in rows
        }
        catalog = shipped.with_prices(found, str(body["date"])[:10])
    except (OSError, ValueError, KeyError, TypeError):
        catalog = shipped
    use_catalog(catalog)
    return catalog


def _price(value: Any) -> float | None:
    if value is None:
        return None
    usd = float(value)
    # With a price of 0 a budget would never end; with infinity it would end at once.
    if not (math.isfinite(usd) and usd > 0):
        raise ValueError("a price is a number above 0")
    return usd


@dataclass(frozen=True)
class Refreshed:
    """The refreshed prices, their date and the file that stores them."""

    date: str
    file: Path
    prices: Found

    def as_dict(self) -> dict[str, Any]:
        """Return the prices as in `--json`."""
        rows = [
            {
                "generation": generation, "region": region, "multi_host": several,
                "on_demand_usd_chip_hour": price.on_demand, "spot_usd_chip_hour": price.spot,
            }
            for (generation, region, several), price in self.prices.items()
        ]  # fmt: skip
        return {"date": self.date, "file": str(self.file), "prices": rows}


def refresh_prices(project: str | None, cloud: str) -> Refreshed:
    """Store the prices of Google's billing catalogue; change nothing if it is unreadable or empty."""
    found = prices_of(read_skus(clients_of(cloud, project)))
    # Before writing: an empty answer must not replace good prices.
    if not found:
        raise NotFoundError(
            "the billing catalogue lists no price of a TPU that tpuctl understands",
            hint="report it; the earlier prices stay in use",
            changed="no price was changed",
        )
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    path = cache_file(cloud)
    private_folder(path.parent)
    write_private(path, json.dumps(body_of(found, date), indent=1).encode())
    return Refreshed(date, path, found)
