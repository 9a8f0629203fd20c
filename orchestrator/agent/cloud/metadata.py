"""Read the machine's metadata server: access tokens and the preemption notice."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import dataclass
from typing import Mapping

from orchestrator.agent.cloud.transport import Transport
from orchestrator.contract.machine_errors import AgentError, TransientError

DEFAULT_HOST = "metadata.google.internal"
TOKEN_MARGIN = 120.0
"""Seconds before its end from which a token is not used any more, so that no long upload begins with it."""


@dataclass(frozen=True)
class MetadataValue:
    """A metadata value, and the etag with which to wait for a change."""

    text: str
    etag: str


class Metadata:
    """The metadata server at *host* (`address` or `address:port`)."""

    def __init__(self, host: str) -> None:
        self._base = f"http://{host}/computeMetadata/v1/"
        # A link-local address: through a proxy of the job, the tokens would leave the machine.
        self._transport = Transport(proxies=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Metadata:
        """Return a client of the server in GCE_METADATA_HOST, by default Google's."""
        return cls(environ.get("GCE_METADATA_HOST") or DEFAULT_HOST)

    def get(self, path: str, timeout: float = 5.0) -> MetadataValue:
        """Return a value. Raise TransientError for network failures and 5xx, AgentError for other refusals."""
        reply = self._transport.send("GET", self._base + path, {"Metadata-Flavor": "Google"}, timeout=timeout)
        if reply.status == 200:
            return MetadataValue(reply.body.decode("utf-8", "replace"), reply.headers.get("etag", ""))
        kind = TransientError if reply.status in (408, 429) or reply.status >= 500 else AgentError
        raise kind(f"metadata server answers {reply.status} for {path}")

    def changed(self, path: str, etag: str, timeout: float) -> MetadataValue:
        """Return a value when its etag differs from *etag*, or after *timeout* seconds in any case."""
        query = f"?wait_for_change=true&last_etag={etag}&timeout_sec={int(timeout)}"
        return self.get(path + query, timeout=timeout + 15)


class Tokens:
    """
    The access token of the machine's service account, cached until two minutes before it expires.

    With *optional* (the bucket is an emulator's), requests are sent without a token if there is none.
    """

    def __init__(self, metadata: Metadata, optional: bool) -> None:
        self._metadata = metadata
        self._optional = optional
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def headers(self) -> Mapping[str, str]:
        """Return the authorization header. Raise TransientError if no token can be obtained."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._renew()
            return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def forget(self) -> None:
        """Drop the cached token after a service has refused it."""
        with self._lock:
            self._until = 0.0

    def _renew(self) -> None:
        try:
            answer = json.loads(self._metadata.get("instance/service-accounts/default/token").text)
            self._token = str(answer["access_token"])
            # Monotonic, since a new machine's clock jumps when time synchronisation starts.
            self._until = time.monotonic() + max(10.0, float(answer["expires_in"]) - TOKEN_MARGIN)
        except (AgentError, ValueError, KeyError, TypeError) as error:
            if not self._optional:
                raise TransientError(f"no access token: {error}") from error
            self._token = ""
            self._until = time.monotonic() + 60.0
