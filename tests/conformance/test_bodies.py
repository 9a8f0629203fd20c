"""
No body of a request makes the local cloud fail: it is taken, or refused as Google refuses it.

The bodies are made from Google's discovery documents: each field of each request, in every JSON type.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.secrets import secret_routes
from orchestrator.emulator.http.storage_json import storage_routes
from orchestrator.emulator.state.secrets import Secrets
from orchestrator.emulator.state.storage.service import Storage
from tests.conformance.discovery import INSTALLED, Method, method_of
from tests.emulator.emulator_lab import (
    NODES,
    PROJECT,
    SPOT_NODE,
    VMS,
    ZONE,
    EmulatorLab,
    a_lab,
    node_body,
    vm_body,
)

pytestmark = pytest.mark.skipif(not INSTALLED, reason="google-api-python-client is not installed")
VALUES: tuple[Any, ...] = (
    None, "", "x", 0, -1, 1.5, 10**30, True, [], {}, [None], [1], ["x"], [[]], [{}], {"a": 1}, {"x": None},
    "é" * 70,
)  # fmt: skip
WHOLE = (b"null", b"[]", b"1", b'"x"', b"{", b"\xff", b"[" * 3000, b'{"a":' * 3000, b"{}", b"")
QUEUED = NODES.replace("/nodes", "/queuedResources")
COMPUTE, SECRETS = f"/compute/v1/projects/{PROJECT}", f"/v1/projects/{PROJECT}/secrets"
RULE = {"name": "fresh", "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}], "sourceRanges": ["0.0.0.0/0"]}
SLICE = {"tpu": {"nodeSpec": [{"parent": "p", "nodeId": "q1n", "node": node_body()}]}, "spot": {}}
CALLS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", f"{NODES}?nodeId=", node_body(**SPOT_NODE)),
    ("PATCH", f"{NODES}/n1?updateMask=labels,metadata,tags,description", {"labels": {"a": "b"}}),
    ("POST", f"{NODES}/n1:getGuestAttributes", {}),
    ("POST", f"{NODES}/n1:stop", {}),
    ("POST", f"{NODES}/n1:start", {}),
    ("POST", f"{QUEUED}?queuedResourceId=", SLICE),
    ("POST", VMS, vm_body("fresh")),
    ("POST", f"{VMS}/bulkInsert", {"count": "1", "namePattern": "v###", "instanceProperties": vm_body()}),
    ("POST", f"{VMS}/v1/setMetadata", {"items": []}),
    ("POST", f"{VMS}/v1/setLabels", {"labels": {}}),
    ("POST", f"{VMS}/v1/setTags", {"items": []}),
    ("POST", f"{VMS}/v1/setServiceAccount", {"email": "default", "scopes": []}),
    ("POST", f"{VMS}/v1/setScheduling", {"onHostMaintenance": "MIGRATE"}),
    ("POST", f"{COMPUTE}/global/firewalls", RULE),
    ("POST", "/storage/v1/b?project=p", {"name": "fresh", "location": "US"}),
    ("PATCH", "/storage/v1/b/data", {"labels": {"a": "b"}}),
    ("PUT", "/storage/v1/b/data/iam", {"bindings": []}),
    ("PATCH", "/storage/v1/b/data/o/one", {"metadata": {"a": "b"}}),
    ("POST", "/storage/v1/b/data/o/one/compose", {"sourceObjects": [{"name": "one"}]}),
    ("POST", "/storage/v1/b/data/o/one/rewriteTo/b/data/o/two", {}),
    ("POST", "/storage/v1/b/data/o/one/copyTo/b/data/o/two", {}),
    ("POST", "/upload/storage/v1/b/data/o?uploadType=resumable", {"name": "three"}),
    ("POST", f"{SECRETS}?secretId=", {"replication": {"automatic": {}}}),
    ("POST", f"{SECRETS}/s1:addVersion", {"payload": {"data": "YQ=="}}),
    ("POST", f"{SECRETS}/s1:setIamPolicy", {"policy": {"bindings": []}}),
    ("POST", f"{SECRETS}/s1/versions/1:disable", {}),
)
LISTS = (
    NODES, QUEUED, VMS, f"{COMPUTE}/global/firewalls", f"{COMPUTE}/zones/{ZONE}/operations",
    "/storage/v1/b?project=p", "/storage/v1/b/data/o", "/storage/v1/b/data/iam", SECRETS,
    f"{SECRETS}/s1/versions",
)  # fmt: skip


@pytest.fixture
def lab(tmp_path) -> EmulatorLab:
    """Return a cloud with one of each: node, VM, bucket, object, secret."""
    made = a_lab(VirtualClock(), quotas={})
    storage = Storage(made.clock)
    storage_routes(made.router, storage, lambda request: dispatch(made.router, made.cloud, request))
    secret_routes(made.router, made.cloud, Secrets(made.clock, 1, tmp_path / "secrets.json"))
    made.node()
    made.vm()
    storage.buckets.create("p", {"name": "data"})
    made.ok("POST", f"{SECRETS}?secretId=s1", {"replication": {"automatic": {}}})
    made.ok("POST", f"{SECRETS}/s1:addVersion", {"payload": {"data": "YQ=="}})
    _send(made, "POST", "/upload/storage/v1/b/data/o?uploadType=media&name=one", b"x")
    return made


@pytest.mark.parametrize(("verb", "target", "body"), CALLS, ids=lambda value: value if value != {} else "-")
def test_every_body_has_an_answer_of_googles_form(lab, verb, target, body):
    """Each field in each type: a status below 500, and what is there can still be listed."""
    method = method_of(verb, target.partition("?")[0])
    assert method is not None
    failed, taken = [], []
    for number, made in enumerate(_contents(method, body)):
        # What is created needs a name of its own, or nothing but the name would be looked at.
        content = made.replace(b'"name": "fresh"', f'"name": "fresh{number}"'.encode())
        answer = _send(lab, verb, f"{target}f{number}" if target.endswith("Id=") else target, content)
        if not _sound(answer):
            failed.append((content[:200], answer.status, answer.body[:200]))
        if answer.status >= 400:
            continue  # nothing has changed
        taken.append(content[:300])
        # What a body breaks stays broken: a look at all lists after each one would cost a minute.
        if len(taken) % 16 == 0:
            assert _broken(lab) == [], taken[-16:]
    assert _broken(lab) == [], taken[-16:]
    assert failed == []


def _broken(lab: EmulatorLab) -> list[str]:
    """Return the lists that cannot be read any more."""
    return [path for path in LISTS if not _sound(_send(lab, "GET", path, b""))]


def _contents(method: Method, body: dict[str, Any]) -> Iterator[bytes]:
    yield from WHOLE
    schema = method.schema("request")
    yield json.dumps({**body, "unknownField": 1}).encode()
    for changed in _changed(method, schema or {}, body, 3):
        yield json.dumps(changed).encode()


def _changed(method: Method, schema: Any, body: Any, depth: int) -> Iterator[Any]:
    """Yield *body* with each field of its schema replaced by each value, and so on below the fields that it has."""
    known = method.document["schemas"][schema["$ref"]] if "$ref" in schema else schema
    for name, inner in known.get("properties", {}).items():
        for value in VALUES:
            yield {**body, name: value}
        held = body.get(name)
        if depth and isinstance(held, dict):
            yield from ({**body, name: one} for one in _changed(method, inner, held, depth - 1))
        elif depth and isinstance(held, list) and held and isinstance(held[0], dict):
            yield from ({**body, name: [one]} for one in _changed(method, inner["items"], held[0], depth - 1))


def _send(lab: EmulatorLab, verb: str, target: str, body: bytes) -> Response:
    try:
        return dispatch(lab.router, lab.cloud, Request.parse(verb, target, {}, body))
    except Exception as error:
        return Response(500, repr(error).encode())


def _sound(answer: Response) -> bool:
    if answer.status < 400:
        return True
    try:
        return answer.status < 500 and json.loads(answer.body)["error"]["code"] == answer.status
    except (ValueError, KeyError, TypeError):
        return False
