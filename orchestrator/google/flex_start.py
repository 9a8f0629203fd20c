"""
The one call that v2alpha1 alone knows: a flex-start queued resource.

The client of v2alpha1 has neither the fields nor a REST transport (docs/facts.md 1.5), so the request is sent
as JSON over the session of the client of v2: the same login, payer, limits and recorder. All else stays v2:
it lists and deletes what v2alpha1 has made.
"""

import json
from collections.abc import Mapping
from typing import Any

from orchestrator.google.bodies import queued_json
from orchestrator.google.clients import Clients

GOOGLE = "https://tpu.googleapis.com"


def create_by_alpha(clients: Clients, parent: str, name: str, body: Mapping[str, Any]) -> Mapping[str, Any]:
    """Ask for a queued resource and return its operation as JSON; errors: those of the official clients."""
    from google.api_core import exceptions

    host = clients.settings.endpoint or GOOGLE
    answer = clients.tpu.transport._session.post(  # noqa: SLF001 - as in Clients
        f"{host}/v2alpha1/{parent}/queuedResources",
        params={"queuedResourceId": name},
        data=json.dumps(queued_json(body)),
        headers={"Content-Type": "application/json"},
        timeout=clients.settings.call_timeout,
    )
    if answer.status_code >= 400:
        raise exceptions.from_http_response(answer)
    found = answer.json()
    if not isinstance(found, dict) or not isinstance(found.get("name"), str):
        raise exceptions.Unknown("the answer is not an operation")
    return found
