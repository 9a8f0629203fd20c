"""
Parse TPU prices from the billing catalogue (Cloud Billing API, services.skus). Pure.

Meaning of the fields: docs/facts.md 4.3.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.domain.catalog import Price

SERVICES = ("E000-3F24-B8AA", "6F81-5844-456A")
"""Services that sell TPUs: Cloud TPU (v2 to v4, by four chips), Compute Engine (later ones, by the chip)."""
FOR_FOUR = frozenset({"v2", "v3", "v4"})
PriceKey = tuple[str, str, bool]
_GENERATION = re.compile(r"tpu[-\s]?(v\d+[a-z]*|7x)", re.IGNORECASE)
_OTHER_WAYS = re.compile(
    r"reserved|calendar|dws|flex|defined duration|commit|subscription|fixed price|capacity", re.IGNORECASE
)
"""Words in prices that tpuctl never pays: reservations, commitments and similar."""


def prices_of(skus: Iterable[Mapping[str, Any]]) -> dict[PriceKey, Price]:
    """
    Return the USD per chip-hour by (generation, region, several hosts or one).

    If two SKUs have one key, the higher price counts. An SKU that is not understood is left out.
    """
    spot: dict[PriceKey, float] = {}
    on_demand: dict[PriceKey, float] = {}
    for sku in skus:
        read = _read(sku)
        if read is None:
            continue
        keys, is_spot, usd = read
        table = spot if is_spot else on_demand
        for key in keys:
            table[key] = max(usd, table.get(key, 0.0))
    return {key: Price(on_demand.get(key), spot.get(key)) for key in sorted({*spot, *on_demand})}


def _read(sku: Mapping[str, Any]) -> tuple[list[PriceKey], bool, float] | None:
    try:
        category, text = sku["category"], str(sku["description"])
        generation = _GENERATION.search(text)
        spot = category["usageType"] == "Preemptible"
        sold = category["resourceGroup"] == "TPU" and (spot or category["usageType"] == "OnDemand")
        if generation is None or not sold or _OTHER_WAYS.search(text):
            return None
        name = generation[1].lower()
        usd = _usd(sku) / (4 if name in FOR_FOUR else 1)
        several = name in ("v2", "v3") and "pod" in text.lower()
        regions = [str(region) for region in sku["serviceRegions"]]
    except (KeyError, TypeError, ValueError, IndexError):
        return None
    return ([(name, region, several) for region in regions], spot, usd) if usd > 0 else None


def _usd(sku: Mapping[str, Any]) -> float:
    rate = sku["pricingInfo"][-1]["pricingExpression"]["tieredRates"][-1]["unitPrice"]
    if rate.get("currencyCode", "USD") != "USD":
        raise ValueError("a price in another currency")
    return int(rate.get("units", 0)) + int(rate.get("nanos", 0)) / 1e9
