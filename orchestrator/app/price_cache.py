"""Prices that `tpuctl prices refresh` has kept, and the catalogue with them."""

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.app.state_folders import state_folder
from orchestrator.config.shipped_catalog import shipped_catalog, use_catalog
from orchestrator.domain.catalog import Catalog, Price

SCHEMA = 1
Found = Mapping[tuple[str, str, bool], Price]


def cache_file(cloud: str) -> Path:
    """Return where refreshed prices are kept, for each cloud its own."""
    return state_folder(cloud) / "prices.json"


def body_of(found: Found, date: str) -> dict[str, Any]:
    """Return what is kept."""
    rows = [[*place, price.ondemand, price.spot] for place, price in found.items()]
    return {"schema": SCHEMA, "date": date, "prices": rows}


def catalog_for(cloud: str) -> Catalog:
    """
    Return the catalogue with the refreshed prices of a cloud, and let all of this process use it.

    A file that cannot be read or understood is as none: the shipped prices hold.
    """
    shipped = shipped_catalog()
    try:
        body = json.loads(cache_file(cloud).read_bytes())
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
    if not (math.isfinite(usd) and usd > 0):
        raise ValueError("a price is a number above 0")
    return usd
