"""Read the billing catalogue over REST: public prices, readable for any login if the API is enabled."""

from collections.abc import Iterator
from typing import Any

from orchestrator.google.clients import Clients
from orchestrator.google.rest import Rest
from orchestrator.pricing.skus import SERVICES

GOOGLE = "https://cloudbilling.googleapis.com"
PAGE = 5000
MAX_PAGES = 100


def read_skus(clients: Clients) -> Iterator[dict[str, Any]]:
    """Yield the SKUs of the services that sell TPUs, all pages. Raise AuthError if the login may not read them."""
    rest = Rest(clients, GOOGLE)
    for service in SERVICES:
        path, token = f"/v1/services/{service}/skus", ""
        for _ in range(MAX_PAGES):
            query = {"currencyCode": "USD", "pageSize": str(PAGE), **({"pageToken": token} if token else {})}
            page = rest.get(path, "read the billing catalogue", query)
            yield from page.get("skus", [])
            token = str(page.get("nextPageToken", ""))
            if not token:
                break
