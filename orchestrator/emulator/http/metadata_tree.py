"""
Compute one machine's metadata server as a pure function: paths, directories, recursion, etags.

Paths, header rule and answers follow docs/facts.md 2.4, 5.1 and 5.2; `identity` is not served.
"""

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.values.machine import Machine

PREFIX = "/computeMetadata/v1"
FLAVOR = {"metadata-flavor": "Google", "server": "Metadata Server for VM"}
_ACCOUNT_TOKEN = re.compile(r"instance/service-accounts/[^/]+/token")
GUEST_ATTRIBUTE = re.compile(r"instance/guest-attributes/([A-Za-z0-9_.-]+)/([A-Za-z0-9_.-]+)$")
TOKEN_SECONDS = 3599
TOKEN_START = "local-cloud-"  # noqa: S105 - how a token begins
Tree = dict[str, Any]  # a leaf is text, a number or a list; a directory is a Tree


class MachineView:
    """The present state of one machine, as its metadata server shows it."""

    project_attributes: Mapping[str, str] = {}  # the local cloud has none

    def __init__(self, cloud: LocalCloud, machine: Machine) -> None:
        self._cloud = cloud
        self.machine = machine

    @property
    def attributes(self) -> Mapping[str, str]:
        return self.machine.attributes

    @property
    def preempted(self) -> bool:
        return self._cloud.machine_state(self.machine.id).preempted

    @property
    def maintenance_event(self) -> str:
        """Return NONE, MIGRATE_ON_HOST_MAINTENANCE or TERMINATE_ON_HOST_MAINTENANCE."""
        return self._cloud.machine_state(self.machine.id).maintenance_event

    @property
    def guest_attributes(self) -> Mapping[str, str]:
        """Return the guest attributes by `namespace/key`."""
        found = self._cloud.guest_attributes(self.machine.id)
        return {f"{namespace}/{key}": value for (namespace, key), value in found.items()}

    def put_guest_attribute(self, namespace: str, key: str, value: str) -> None:
        self._cloud.put_guest_attribute(self.machine.id, namespace, key, value)


def answer(view: MachineView, request: Request) -> Response:
    """Answer one request at once; waiting for a change is left to the server."""
    if request.path in ("", "/"):
        return _text("computeMetadata/\n")
    path = request.path[len(PREFIX) :].lstrip("/")
    if request.headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in request.headers:
        return _text("Missing required header: Metadata-Flavor: Google\n", 403)
    if not request.path.startswith(PREFIX):
        return _text("Not found\n", 404)
    if request.method == "PUT":
        return _put(view, path, request.body)
    if request.method != "GET":
        return _text("Method not allowed\n", 405)
    return _get(view, path, request.query)


def tree(view: MachineView) -> Tree:
    machine = view.machine
    number = machine.project_number
    zone = f"projects/{number}/zones/{machine.zone}"
    account = {"aliases": ["default"], "email": machine.service_account, "scopes": list(machine.scopes)}
    guest: Tree = {}
    for name, value in view.guest_attributes.items():
        namespace, _, key = name.partition("/")
        guest.setdefault(namespace, {})[key] = value
    outside: Tree = {} if machine.private else {"0": {"external-ip": machine.address}}
    instance: Tree = {
        "attributes": dict(view.attributes),
        "guest-attributes": guest,
        "hostname": f"{machine.name}.{machine.zone}.c.{machine.project}.internal",
        "id": machine.numeric_id,
        "machine-type": f"projects/{number}/machineTypes/{machine.machine_type}",
        "maintenance-event": view.maintenance_event,
        "name": machine.name,
        "network-interfaces": {"0": {"access-configs": outside, "ip": machine.address}},
        "preempted": "TRUE" if view.preempted else "FALSE",
        "scheduling": {
            "automatic-restart": "FALSE" if machine.preemptible else "TRUE",
            "on-host-maintenance": "TERMINATE" if machine.preemptible else "MIGRATE",
            "preemptible": "TRUE" if machine.preemptible else "FALSE",
        },
        "service-accounts": {"default": account, machine.service_account: account},
        "tags": list(machine.tags),
        "zone": zone,
    }
    project = {
        "attributes": dict(view.project_attributes),
        "numeric-project-id": number,
        "project-id": machine.project,
    }
    return {"instance": instance, "project": project}


def _get(view: MachineView, path: str, query: Mapping[str, str]) -> Response:
    """Answer a GET: a leaf, a directory's listing or, with recursive=true, the whole directory."""
    if _ACCOUNT_TOKEN.fullmatch(path) and _find(tree(view), path.removesuffix("/token")) is not None:
        return _json(
            {"access_token": token_of(view.machine), "expires_in": TOKEN_SECONDS, "token_type": "Bearer"}
        )
    value = _find(tree(view), path)
    if value is None or (path.endswith("/") and not isinstance(value, dict)):
        return _text("Not found\n", 404)
    if isinstance(value, dict):
        return _directory(value, path, query)
    return _json(value) if query.get("alt") == "json" else _text(_plain(value, path))


def _directory(value: Tree, path: str, query: Mapping[str, str]) -> Response:
    """Answer a GET of a directory; redirect to the path with a slash if it is missing."""
    if query.get("recursive", "").lower() == "true":
        return _json(_camel(value, path)) if query.get("alt", "json") == "json" else _text(_lines(value))
    if path and not path.endswith("/"):
        return Response(301, b"", {**FLAVOR, "location": f"{PREFIX}/{path}/"})
    return _text("".join(f"{k}/\n" if isinstance(v, dict) else f"{k}\n" for k, v in sorted(value.items())))


def _put(view: MachineView, path: str, body: bytes) -> Response:
    """Store a guest attribute, if the instance allows them."""
    match = GUEST_ATTRIBUTE.match(path)
    if not match:
        return _text("Method not allowed\n", 405)
    if view.attributes.get("enable-guest-attributes", "").upper() != "TRUE":
        return _text("Guest attributes endpoint access is disabled.\n", 403)
    view.put_guest_attribute(match[1], match[2], body.decode())
    return _text("")


def _find(root: Tree, path: str) -> Any:
    node: Any = root
    for part in [part for part in path.split("/") if part]:
        if not isinstance(node, dict) or part not in node:
            return None
        node = node[part]
    return node


def _camel(node: Any, path: str) -> Any:
    """Convert names to the JSON form (camelCase, numbered directories to lists), except attribute keys."""
    if not isinstance(node, dict):
        return node
    if path.rstrip("/").endswith("attributes") or "/guest-attributes" in f"/{path}":
        return {key: _camel(value, f"{path}/{key}") for key, value in node.items()}
    if node and all(key.isdigit() for key in node):
        return [_camel(value, f"{path}/{key}") for key, value in node.items()]
    return {_camel_key(key): _camel(value, f"{path}/{key}") for key, value in node.items()}


def _camel_key(key: str) -> str:
    if "@" in key:
        return key
    first, *rest = key.split("-")
    return first + "".join(part.capitalize() for part in rest)


def _lines(node: Tree, prefix: str = "") -> str:
    """Return `path value` lines, the alt=text form of a recursive answer."""
    text = ""
    for key, value in sorted(node.items()):
        path = f"{prefix}{key}"
        text += _lines(value, f"{path}/") if isinstance(value, dict) else f"{path} {_plain(value, path)}\n"
    return text


def _plain(value: Any, path: str) -> str:
    """Return a leaf as text: tags as a JSON list, other lists with one entry per line."""
    if isinstance(value, list):
        return json.dumps(value) if path.endswith("tags") else "".join(f"{item}\n" for item in value)
    return str(value)


def token_of(machine: Machine) -> str:
    """Return the machine's access token, which Google's services do not accept."""
    return TOKEN_START + hashlib.sha256(machine.id.encode()).hexdigest()[:32]


def _text(text: str, status: int = 200) -> Response:
    return _tagged(status, text.encode(), "application/text")


def _json(value: object) -> Response:
    return _tagged(200, json.dumps(value).encode(), "application/json")


def _tagged(status: int, body: bytes, content_type: str) -> Response:
    """Return an answer whose etag is the hash of its body."""
    etag = hashlib.sha256(body).hexdigest()[:16]
    return Response(status, body, {**FLAVOR, "content-type": content_type, "etag": etag})


def items_json(attributes: Mapping[tuple[str, str], str], query: str) -> list[dict[str, str]]:
    """Return the attributes under *query*: "" for all, `namespace/`, or `namespace/key`."""
    namespace, _, key = query.partition("/")
    return [
        {"namespace": ns, "key": name, "value": value}
        for (ns, name), value in sorted(attributes.items())
        if namespace in ("", ns) and key in ("", name)
    ]
