"""
Serve the billing catalogue: published prices of TPUs, as services.skus lists them.

They come from `tpu_prices_published.csv`, so that a refresh replaces the ranges in the shipped tables by
single prices.
"""

from collections.abc import Mapping
from operator import itemgetter
from typing import Any

from orchestrator.emulator.http.paging import SortOrder, rpc_page
from orchestrator.emulator.http.router import Request, Response, Router
from orchestrator.emulator.state.tables import rows

OLD, NEW = "E000-3F24-B8AA", "6F81-5844-456A"
MAX_PAGE = 5000


def billing_routes(router: Router) -> None:
    """Register ListSkus; only the TPU service has SKUs here."""
    router.add("GET", "/v1/services/{service}/skus", _answer)


def _answer(request: Request, service: str) -> Response:
    shown, token = rpc_page(request, _skus(service), SortOrder(itemgetter("name")), MAX_PAGE)
    return Response.of({"skus": list(shown), "nextPageToken": token})


def _skus(service: str) -> list[dict[str, Any]]:
    return [
        _sku(service, row, number, spot=spot)
        for number, row in enumerate(rows("tpu_prices_published.csv"))
        if ((row["generation"] in ("v2", "v3", "v4")) is (service == OLD)) and service in (OLD, NEW)
        for spot in (False, True)
    ]


def _sku(service: str, row: Mapping[str, str], number: int, *, spot: bool) -> dict[str, Any]:
    generation, old = row["generation"], service == OLD
    usd = float(row["spot_usd_chip_hour" if spot else "on_demand_usd_chip_hour"]) * (4 if old else 1)
    units, nanos = divmod(round(usd * 1e9), 10**9)
    name = f"Tpu-{generation}" if old else f"Tpu{generation[0].upper()}{generation[1:]}"
    price = {"currencyCode": "USD", "units": str(units), "nanos": nanos}
    pod = " Pod" if row["basis_type"].endswith("-32") else ""
    sku = f"{number:04X}-{'5' if spot else '0'}000-0000"
    return {
        "name": f"services/{service}/skus/{sku}",
        "skuId": sku,
        "description": f"{name}{pod} accelerator{' attached to Spot Preemptible VMs' if spot else ''}",
        "category": {
            "serviceDisplayName": "Cloud TPU" if old else "Compute Engine", "resourceFamily": "Compute",
            "resourceGroup": "TPU", "usageType": "Preemptible" if spot else "OnDemand",
        },
        "serviceRegions": [row["region"]],
        "pricingInfo": [
            {
                "pricingExpression": {
                    "usageUnit": "h", "usageUnitDescription": "hour", "displayQuantity": 1,
                    "tieredRates": [
                        {"startUsageAmount": 0, "unitPrice": price}
                    ],
                },
                "currencyConversionRate": 1,
            }
        ],
        "serviceProviderName": "Google",
    }  # fmt: skip
