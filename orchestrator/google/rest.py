"""Call Google's APIs that we have no client library for: plain JSON over REST."""

from collections.abc import Mapping
from typing import Any

from orchestrator.google.client_errors import translated
from orchestrator.google.clients import Clients
from orchestrator.google.lean_imports import imported


class Rest:
    """
    Call one service at *address*, or the local cloud instead.

    Only reading calls are repeated, as by the clients.
    """

    def __init__(self, clients: Clients, address: str) -> None:
        settings = self._settings = clients.settings
        self._reading = clients.reading
        self._address = settings.endpoint or address
        with translated("log in to Google Cloud"):
            self._session = imported("google.auth.transport.requests").AuthorizedSession(clients.credentials)
        if settings.endpoint:
            # Requests to a local cloud must not go through a proxy or use ~/.netrc.
            self._session.trust_env = False
        if settings.endpoint and settings.adapter is not None:
            self._session.mount(settings.endpoint, settings.adapter)

    def get(self, path: str, what: str, query: Mapping[str, str] | None = None) -> dict[str, Any]:
        """Return the answer of a GET; *what* begins the message of an error. Raise TpuctlError."""
        return self.call("GET", path, what, query=query)

    def call(
        self, method: str, path: str, what: str, *, query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None, fine: int = 200,
    ) -> dict[str, Any]:  # fmt: skip
        """Make one call and return its answer; {} for status *fine*, which is then no error. Raise TpuctlError."""

        def once() -> dict[str, Any]:
            answer = self._session.request(
                method, self._address + path, params=dict(query or {}), json=body,
                timeout=self._settings.call_timeout,
            )  # fmt: skip
            if answer.status_code == 200:
                return dict(answer.json())
            if answer.status_code == fine:
                return {}
            raise imported("google.api_core.exceptions").from_http_response(answer)

        repeated = self._reading["retry"] if method == "GET" else None
        with translated(what):
            found: dict[str, Any] = repeated(once)() if repeated else once()
            return found
