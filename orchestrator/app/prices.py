"""Read the prices of TPUs anew; the shipped tables are used until then."""

import json
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from orchestrator.app.clouds import clients_of
from orchestrator.app.price_cache import Found, body_of, cache_file
from orchestrator.engine.atomic_files import write_atomically
from orchestrator.errors import NotFoundError
from orchestrator.google.billing_catalog import read_skus
from orchestrator.pricing.skus import prices_of
from orchestrator.private_folders import private_folder


@dataclass(frozen=True)
class Refreshed:
    """Hold the prices of a day, and the file that keeps them."""

    date: str
    file: Path
    prices: Found

    def as_dict(self) -> dict[str, Any]:
        """Return it as `--json` prints it."""
        rows = [
            {
                "generation": generation, "region": region, "several_hosts": several,
                "ondemand_usd_chip_hour": price.ondemand, "spot_usd_chip_hour": price.spot,
            }
            for (generation, region, several), price in self.prices.items()
        ]  # fmt: skip
        return {"date": self.date, "file": str(self.file), "prices": rows}


def refresh_prices(project: str | None, cloud: str) -> Refreshed:
    """Read Google's billing catalogue and use its prices from now on; where it cannot be read, nothing changes."""
    found = prices_of(read_skus(clients_of(cloud, project)))
    if not found:
        raise NotFoundError(
            "the billing catalogue lists no price of a TPU that tpuctl understands",
            hint="please report it; the earlier prices stay in use",
            changed="no price was changed",
        )
    date = datetime.now(timezone.utc).strftime("%Y-%m-%d")
    path = cache_file(cloud)
    private_folder(path.parent)
    write_atomically(path, json.dumps(body_of(found, date), indent=1).encode())
    return Refreshed(date, path, found)
