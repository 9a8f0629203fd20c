"""
Call Secret Manager v1 over REST; its few calls need no client library.

A value is only in the body of one request or answer, never in a message of ours.
"""

import base64
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from orchestrator.domain.source.secret_refs import ACCESS_ROLE, SecretRef
from orchestrator.errors import AuthError, MissingPermissionError, NotFoundError, UsageError
from orchestrator.google.clients import Clients
from orchestrator.google.rest import Rest

GOOGLE = "https://secretmanager.googleapis.com"
MAX_BYTES = 64 * 1024


@dataclass(frozen=True)
class Stored:
    """A secret without its value. *created* is an RFC 3339 time."""

    name: str
    created: str


class SecretManager:
    """Store, list and read the secrets of one project."""

    def __init__(self, clients: Clients) -> None:
        self._clients = clients

    def set(self, name: str, value: bytes) -> int:
        """Add a version, creating the secret if needed; return the version's number."""
        if not 0 < len(value) <= MAX_BYTES:
            text = f"secret {name}: a value has 1 to {MAX_BYTES:,} bytes, not {len(value):,}"
            hint = "put larger data into job.data, or into a bucket" if value else "send it to standard input"
            raise UsageError(text, hint=hint, changed="nothing was stored")
        what = f"store secret '{name}'"
        # 409: it exists, perhaps from our own call whose answer was lost. A version is added either way.
        self._call("POST", f"?secretId={name}", what, {"replication": {"automatic": {}}}, fine=409)
        body = {"payload": {"data": base64.b64encode(value).decode()}}
        made = self._call("POST", f"/{name}:addVersion", what, body)
        return int(str(made["name"]).rpartition("/")[2])

    def list(self) -> list[Stored]:
        """Return every secret of the project by name."""
        found: list[Stored] = []
        token = ""
        while True:
            page = self._call("GET", f"?pageToken={token}" if token else "", "list secrets")
            found += [
                Stored(str(one["name"]).rpartition("/")[2], str(one.get("createTime", "")))
                for one in page.get("secrets", [])
            ]
            token = str(page.get("nextPageToken", ""))
            if not token:
                return sorted(found, key=lambda one: one.name)

    def read(self, ref: SecretRef) -> str:
        """Return a value; raise AuthError, which names the secret and what to do."""
        what = f"read {ref.text}"
        try:
            answer = self._call("GET", f"/{ref.name}/versions/{ref.version}:access", what)
            return base64.b64decode(answer["payload"]["data"]).decode()
        except NotFoundError as error:
            hint = f"run: tpuctl secret set {ref.name}"
            raise AuthError(f"{ref.text} does not exist", hint=hint, code="TPU-250") from error
        except AuthError as error:
            if not isinstance(error, MissingPermissionError):
                raise
            hint = f"give this login {ACCESS_ROLE} on secret {ref.name}"
            raise AuthError(f"{ref.text} may not be read", hint=hint, code="TPU-251") from error
        except UnicodeDecodeError:
            hint = f"store it as UTF-8 text: tpuctl secret set {ref.name}"
            raise AuthError(f"{ref.text} is not text", hint=hint, code="TPU-250") from None

    def readers(self, name: str) -> tuple[str, ...]:
        """Return who may read a secret by a grant on the secret itself, such as `serviceAccount:a@b`."""
        policy = self._call("GET", f"/{name}:getIamPolicy", f"read the policy of secret '{name}'")
        return tuple(
            str(member)
            for binding in policy.get("bindings", [])
            if binding.get("role") == ACCESS_ROLE
            for member in binding.get("members", [])
        )

    def _call(
        self, method: str, tail: str, what: str, body: dict[str, Any] | None = None, *, fine: int = 200
    ) -> dict[str, Any]:
        path = f"/v1/projects/{self._clients.project}/secrets{tail}"
        return self._rest.call(method, path, what, body=body, fine=fine)

    @cached_property
    def _rest(self) -> Rest:
        return Rest(self._clients, GOOGLE)
