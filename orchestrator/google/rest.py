"""Google's APIs for which we have no client library: plain JSON over REST."""

from collections.abc import Mapping
from typing import Any

from orchestrator.google.client_errors import translated
from orchestrator.google.clients import Clients


class Rest:
    """Ask one service at *address*, or the local cloud in its place."""

    def __init__(self, clients: Clients, address: str) -> None:
        from google.auth.transport.requests import AuthorizedSession

        settings = self._settings = clients.settings
        self._address = settings.endpoint or address
        with translated("log in to Google Cloud"):
            self._session = AuthorizedSession(clients.credentials)
        if settings.endpoint:
            self._session.trust_env = False
        if settings.endpoint and settings.adapter is not None:
            self._session.mount(settings.endpoint, settings.adapter)

    def get(self, path: str, what: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the answer; *what* is said in the error."""
        with translated(what):
            from google.api_core.exceptions import from_http_response

            url = self._address + path
            answer = self._session.get(url, params=dict(query or {}), timeout=self._settings.call_timeout)
            if answer.status_code != 200:
                raise from_http_response(answer)
            return dict(answer.json())
