"""Serve Secret Manager v1, as far as `gcloud secrets`, tpuctl and its agent use it."""

import base64
import hashlib
from collections.abc import Callable
from operator import itemgetter
from typing import Any

import google_crc32c

from orchestrator.emulator.http.dispatch import body_of
from orchestrator.emulator.http.error_bodies import error_response
from orchestrator.emulator.http.metadata_tree import token_of
from orchestrator.emulator.http.paging import SortOrder, rpc_page
from orchestrator.emulator.http.router import Handler, Request, Response, Router
from orchestrator.emulator.state.api_errors import ApiError, cases
from orchestrator.emulator.state.body_shapes import TEXTS, Shape
from orchestrator.emulator.state.call_gate import admitted_storage
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.secrets import DESTROYED, DISABLED, ENABLED, Secret, Secrets, Version
from orchestrator.emulator.state.storage.stored import rfc3339
from orchestrator.emulator.state.values import methods

SCOPE = "https://www.googleapis.com/auth/cloud-platform"
PAGE = 25000
_BY_NAME = SortOrder(itemgetter("name"))
_NEWEST_FIRST = SortOrder(lambda version: version["name"].rpartition("/")[2].zfill(9), backwards=True)
_P = "/v1/projects/{project}/secrets"
_S = _P + "/{name}"
_V = _S + "/versions"
_SECRET: Shape = {"labels": TEXTS, "replication": {}}
_PAYLOAD: Shape = {"payload": {"data": str}}
_POLICY: Shape = {"policy": {"bindings": [{"role": str, "members": [str]}], "etag": str}}
_CHECKSUM_ERROR = "The payload does not match its checksum."


def secret_routes(router: Router, cloud: LocalCloud, secrets: Secrets) -> None:
    """Register the routes; each handler's `__name__` is its method, for example `secretmanager.versions.access`."""
    calls = SecretRequests(cloud, secrets)
    table: list[tuple[str, str, str, Callable[..., Response]]] = [
        ("secretmanager.secrets.create", "POST", _P, calls.create),
        ("secretmanager.secrets.list", "GET", _P, calls.list),
        ("secretmanager.versions.add", "POST", _S + ":addVersion", calls.add),
        ("secretmanager.secrets.getIamPolicy", "GET", _S + ":getIamPolicy", calls.policy),
        ("secretmanager.secrets.setIamPolicy", "POST", _S + ":setIamPolicy", calls.set_policy),
        ("secretmanager.versions.access", "GET", _V + "/{version}:access", calls.access),
        ("secretmanager.versions.disable", "POST", _V + "/{version}:disable", calls.turn(DISABLED)),
        ("secretmanager.versions.enable", "POST", _V + "/{version}:enable", calls.turn(ENABLED)),
        ("secretmanager.versions.destroy", "POST", _V + "/{version}:destroy", calls.turn(DESTROYED)),
        ("secretmanager.versions.get", "GET", _V + "/{version}", calls.version),
        ("secretmanager.versions.list", "GET", _V, calls.versions),
        ("secretmanager.secrets.get", "GET", _S, calls.get),
        ("secretmanager.secrets.delete", "DELETE", _S, calls.delete),
    ]
    for method, verb, pattern, handler in table:
        router.add(verb, pattern, _admitted(cloud, method, handler))


def _admitted(cloud: LocalCloud, method: str, handler: Callable[..., Response]) -> Handler:
    """Wrap a handler with the checks of project, scope of the caller's machine, permission and faults."""

    def answer(request: Request, project: str, **parts: str) -> Response:
        try:
            _check_caller(cloud, request, method, project, parts.get("name", ""))
            return admitted_storage(cloud, method, lambda: handler(request, **parts))
        except ApiError as error:
            return error_response(request, error)

    answer.__name__ = method
    return answer


def _check_caller(cloud: LocalCloud, request: Request, method: str, project: str, name: str) -> None:
    settings = cloud.settings
    if project not in (settings.project, str(settings.project_number)):
        values = {"permission": methods.permission_of(method), "project": project, "name": name}
        raise cases()["secretmanager v1", "permission denied"].error(**values)
    token = request.headers.get("authorization", "").removeprefix("Bearer ")
    machine = next((one for one in cloud.machines() if token and token_of(one) == token), None)
    if machine is not None and SCOPE not in machine.scopes:
        raise cases()["secretmanager v1", "scope insufficient"].error()


class SecretRequests:
    def __init__(self, cloud: LocalCloud, secrets: Secrets) -> None:
        self._number = cloud.settings.project_number
        self._secrets = secrets

    def create(self, request: Request) -> Response:
        return Response.of(
            self._secret(self._secrets.create(request.query.get("secretId", ""), body_of(request, _SECRET)))
        )

    def list(self, request: Request) -> Response:
        return _listed(request, "secrets", [self._secret(one) for one in self._secrets.all()], _BY_NAME)

    def get(self, _: Request, name: str) -> Response:
        return Response.of(self._secret(self._secrets.get(name)))

    def delete(self, _: Request, name: str) -> Response:
        self._secrets.delete(name)
        return Response.of({})

    def add(self, request: Request, name: str) -> Response:
        """Answer AddSecretVersion. Raise ApiError 400 if the payload does not match its checksum."""
        payload = body_of(request, _PAYLOAD).get("payload", {})
        # Clients send either base64 alphabet.
        data = base64.b64decode(str(payload.get("data", "")).replace("-", "+").replace("_", "/"))
        if str(payload.get("dataCrc32c", _crc32c(data))) != _crc32c(data):
            raise ApiError(400, "INVALID_ARGUMENT", _CHECKSUM_ERROR)
        made = self._secrets.add(name, base64.b64encode(data).decode(), checked="dataCrc32c" in payload)
        return Response.of(self._version(name, made))

    def versions(self, request: Request, name: str) -> Response:
        """Answer ListSecretVersions, the newest first."""
        found = self._secrets.get(name).versions
        return _listed(request, "versions", [self._version(name, one) for one in found], _NEWEST_FIRST)

    def version(self, _: Request, name: str, version: str) -> Response:
        return Response.of(self._version(name, self._secrets.version(name, version)))

    def access(self, _: Request, name: str, version: str) -> Response:
        found = self._secrets.access(name, version)
        payload = {"data": found.data, "dataCrc32c": _crc32c(base64.b64decode(found.data))}
        return Response.of({"name": self._version(name, found)["name"], "payload": payload})

    def turn(self, state: str) -> Callable[..., Response]:
        """Return the handler of EnableSecretVersion, DisableSecretVersion or DestroySecretVersion."""

        def answer(_: Request, name: str, version: str) -> Response:
            return Response.of(self._version(name, self._secrets.turn(name, version, state)))

        return answer

    def policy(self, _: Request, name: str) -> Response:
        return Response.of(_tagged(self._secrets.get(name).policy))

    def set_policy(self, request: Request, name: str) -> Response:
        return Response.of(
            _tagged(self._secrets.set_policy(name, body_of(request, _POLICY).get("policy", {})))
        )

    def _secret(self, secret: Secret) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "name": f"projects/{self._number}/secrets/{secret.name}",
            "replication": {"automatic": {}},
            "createTime": rfc3339(secret.created),
        }
        return _tagged({**shown, "labels": secret.labels} if secret.labels else shown)

    def _version(self, name: str, version: Version) -> dict[str, Any]:
        return _tagged(
            {
                "name": f"projects/{self._number}/secrets/{name}/versions/{version.number}",
                "createTime": rfc3339(version.created),
                "state": version.state,
                "replicationStatus": {"automatic": {}},
                **({"clientSpecifiedPayloadChecksum": True} if version.checked else {}),
            }
        )


def _tagged(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "etag": _etag(body)}


def _etag(body: dict[str, Any]) -> str:
    """Return an etag in base64, because gcloud decodes a policy's etag."""
    return base64.b64encode(hashlib.sha256(repr(body).encode()).digest()[:9]).decode()


def _listed(request: Request, key: str, items: list[dict[str, Any]], order: SortOrder) -> Response:
    shown, token = rpc_page(request, items, order, PAGE)
    body: dict[str, Any] = {key: list(shown), "totalSize": len(items)} if items else {}
    return Response.of({**body, "nextPageToken": token} if token else body)


def _crc32c(data: bytes) -> str:
    return str(google_crc32c.value(data))
