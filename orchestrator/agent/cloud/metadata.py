"""The metadata server of the machine: access tokens and the notice of a preemption."""

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


@dataclass(frozen=True)
class Value:
    """Hold a metadata value and the etag under which a change can be awaited."""

    text: str
    etag: str


class Metadata:
    """Ask the metadata server at *host* (`address` or `address:port`)."""

    def __init__(self, host: str) -> None:
        self._base = f"http://{host}/computeMetadata/v1/"
        # The address is of this machine's host only; a proxy of the job would be given its tokens.
        self._transport = Transport(proxies=False)

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> Metadata:
        """Use the server that GCE_METADATA_HOST names, else the standard one."""
        return cls(environ.get("GCE_METADATA_HOST") or DEFAULT_HOST)

    def get(self, path: str, timeout: float = 5.0) -> Value:
        """Return a value. Raises TransientError for network and 5xx, AgentError for any other refusal."""
        reply = self._transport.send("GET", self._base + path, {"Metadata-Flavor": "Google"}, timeout=timeout)
        if reply.status == 200:
            return Value(reply.body.decode("utf-8", "replace"), reply.headers.get("etag", ""))
        kind = TransientError if reply.status in (408, 429) or reply.status >= 500 else AgentError
        raise kind(f"metadata server answers {reply.status} for {path}")

    def changed(self, path: str, etag: str, seconds: float) -> Value:
        """Return a value as soon as its etag is not *etag*, or after *seconds* as it is."""
        query = f"?wait_for_change=true&last_etag={etag}&timeout_sec={int(seconds)}"
        return self.get(path + query, timeout=seconds + 15)


class Tokens:
    """
    Hold the access token of the machine's service account until two minutes before its end.

    With *optional* (an emulator serves the bucket) a machine without a token goes on without one.
    """

    def __init__(self, metadata: Metadata, optional: bool) -> None:
        self._metadata = metadata
        self._optional = optional
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def headers(self) -> Mapping[str, str]:
        """Return the authorization header. Raises TransientError when no token can be had."""
        with self._lock:
            if time.monotonic() >= self._until:
                self._renew()
            return {"Authorization": f"Bearer {self._token}"} if self._token else {}

    def forget(self) -> None:
        """Drop the token, because a service refused it."""
        with self._lock:
            self._until = 0.0

    def _renew(self) -> None:
        try:
            answer = json.loads(self._metadata.get("instance/service-accounts/default/token").text)
            self._token = str(answer["access_token"])
            # Monotonic: the wall clock of a new machine jumps when the time service starts.
            self._until = time.monotonic() + max(10.0, float(answer["expires_in"]) - TOKEN_MARGIN)
        except (AgentError, ValueError, KeyError, TypeError) as error:
            if not self._optional:
                raise TransientError(f"no access token: {error}") from error
            self._token = ""
            self._until = time.monotonic() + 60.0
