"""
The billing catalogue over REST: public prices, which a login may read where the API is on.
"""

from collections.abc import Iterator
from typing import Any

from orchestrator.cloud.clients import Clients
from orchestrator.cloud.errors import translated
from orchestrator.core.skus import SERVICES

GOOGLE = "https://cloudbilling.googleapis.com"
PAGE = 5000
MOST_PAGES = 100


def read_skus(clients: Clients) -> Iterator[dict[str, Any]]:
    """
    Yield the SKUs of the services that sell TPUs, all pages; raise AuthError where the login may not.
    """
    from google.auth.transport.requests import AuthorizedSession

    settings = clients.settings
    with translated("log in to Google Cloud"):
        session = AuthorizedSession(clients.credentials)
    if settings.endpoint:
        session.trust_env = False
    if settings.endpoint and settings.adapter is not None:
        session.mount(settings.endpoint, settings.adapter)
    for service in SERVICES:
        url, token = f"{settings.endpoint or GOOGLE}/v1/services/{service}/skus", ""
        for _ in range(MOST_PAGES):
            query = {"currencyCode": "USD", "pageSize": str(PAGE), **({"pageToken": token} if token else {})}
            page = _page(session, url, query, settings)
            yield from page.get("skus", [])
            token = str(page.get("nextPageToken", ""))
            if not token:
                break


def _page(session: Any, url: str, query: dict[str, str], settings: Any) -> dict[str, Any]:
    with translated("read the billing catalogue"):
        from google.api_core.exceptions import from_http_response

        answer = session.get(url, params=query, timeout=settings.call_timeout)
        if answer.status_code != 200:
            raise from_http_response(answer)
        return dict(answer.json())
