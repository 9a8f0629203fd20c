"""
Requests and answers against Google's discovery documents: the judge finds mistakes, and the local cloud passes.

The scenarios, the official clients and gcloud are held against the documents where their own tests run.
"""

import json
from typing import Any

import pytest

from orchestrator.emulator.http.dispatch import dispatch
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.storage_json import storage_routes
from tests.conformance import drift
from tests.conformance.clients_kit import compute_v1, tpu_v2
from tests.conformance.discovery import INSTALLED, Witness, document, faults, method_of
from tests.emulator.emulator_lab import (
    NODES,
    PROJECT,
    SPOT_NODE,
    SPOT_VM,
    VMS,
    ZONE,
    EmulatorLab,
    a_lab,
    node_body,
)
from tests.emulator.storage_kit import a_storage, put

pytestmark = pytest.mark.skipif(not INSTALLED, reason="google-api-python-client is not installed")
COMPUTE = f"/compute/v1/projects/{PROJECT}"
TPU = NODES.removesuffix("/nodes")
GLOBAL = f"{COMPUTE}/global"
SENT = (
    NODES, f"{NODES}/n1", f"{TPU}/queuedResources", f"{TPU}/queuedResources/q1", f"{TPU}/operations", TPU,
    f"{TPU}/acceleratorTypes", f"{TPU}/runtimeVersions", f"/v2/projects/{PROJECT}/locations",
    VMS, f"{VMS}/v1", f"{VMS}/v1/serialPort", COMPUTE, f"{COMPUTE}/zones", f"{COMPUTE}/zones/{ZONE}",
    f"{COMPUTE}/regions", f"{COMPUTE}/zones/{ZONE}/machineTypes", f"{COMPUTE}/zones/{ZONE}/disks",
    f"{COMPUTE}/zones/{ZONE}/diskTypes", f"{COMPUTE}/zones/{ZONE}/diskTypes/pd-ssd",
    f"{GLOBAL}/networks/default/getEffectiveFirewalls",
    f"{COMPUTE}/zones/{ZONE}/operations", f"{COMPUTE}/aggregated/instances", f"{COMPUTE}/aggregated/disks",
    f"{COMPUTE}/aggregated/operations", f"{COMPUTE}/aggregated/machineTypes", f"{GLOBAL}/networks",
    f"{GLOBAL}/networks/default", f"{COMPUTE}/aggregated/subnetworks", f"{GLOBAL}/firewalls",
    "/storage/v1/b?project=p", "/storage/v1/b/data", "/storage/v1/b/data/o", "/storage/v1/b/data/o/one",
    "/storage/v1/b/data/iam", "/storage/v1/b/data/storageLayout", f"{NODES}/none", f"{VMS}/none",
    "/storage/v1/b/none", "/storage/v1/b/data/o/none",
)  # fmt: skip


@pytest.fixture
def lab() -> EmulatorLab:
    """Return a cloud in which there is something of each kind."""
    made = a_lab()
    storage = a_storage()
    storage_routes(made.router, storage)
    put(storage, "one", b"text")
    made.node(**SPOT_NODE)
    spec = {"parent": TPU.removeprefix("/v2/"), "nodeId": "q1n", "node": node_body()}
    made.ok("POST", f"{TPU}/queuedResources?queuedResourceId=q1", {"tpu": {"nodeSpec": [spec]}, "spot": {}})
    made.vm(**SPOT_VM)
    made.after(5)
    return made


def test_every_answer_is_one_of_the_documents(lab):
    """Known fields, values of their enums, numbers of 64 bit as text, times, and errors of Google's form."""
    witness = Witness()
    for target in SENT:
        asked = Request.parse("GET", target, {}, b"")
        witness.observe(asked, dispatch(lab.router, lab.cloud, asked))
    assert witness.faults == {}
    assert "" not in witness.met, "a path that no document has"


def test_the_clients_know_every_field(lab):
    """What a client does not know it drops in silence: all answers are parsed with unknown fields refused."""
    parsed = set()
    for target in SENT:
        asked = Request.parse("GET", target, {}, b"")
        answer, method = dispatch(lab.router, lab.cloud, asked), method_of("GET", asked.path)
        assert method is not None
        name = str((method.schema("response") or {}).get("$ref"))
        client = {"tpu.": tpu_v2, "comp": compute_v1}.get(method.id[:4])
        message = getattr(client, name, None) if client and answer.status == 200 else None
        if message is not None:
            message.from_json(answer.body, ignore_unknown_fields=False)
            parsed.add(name)
    assert {"Node", "QueuedResource", "Instance", "InstanceAggregatedList", "ListNodesResponse"} <= parsed


NODE: dict[str, Any] = {"name": "a", "state": "READY", "id": "1", "createTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({}, ""),
        ({"colour": "red"}, "colour is unknown"),
        ({"state": "TIRED"}, "no value of its enum"),
        ({"id": 1}, "no int64"),
        ({"createTime": "yesterday"}, "no google-datetime"),
        ({"labels": {"a": 1}}, "no string"),
        ({"tags": "a"}, "no array"),
        ({"schedulingConfig": {"spot": "yes"}}, "no boolean"),
        ({"description": None}, "is null"),
    ],
)
def test_the_judge_finds_mistakes(change, fault):
    """One deliberate difference is one fault, which names the method and the field."""
    asked = Request.parse("GET", f"{NODES}/n1", {}, b"")
    found = faults(asked, Response.of({**NODE, **change}))
    assert len(found) == bool(fault)
    assert all(
        fault in text and text.startswith("tpu.projects.locations.nodes.get: answer") for text in found
    )


@pytest.mark.parametrize(
    ("verb", "target", "body", "answer", "fault"),
    [
        ("POST", f"{NODES}?nodeId=a", {"acceleratorTyp": "v4-8"}, {}, "acceleratorTyp is unknown"),
        ("GET", f"{NODES}?pagesize=1", None, {}, "query pagesize"),
        ("GET", f"{NODES}?pageSize=1", {"a": 1}, {}, "a body, where the method has none"),
        ("GET", f"{TPU}/nods", None, {}, "no such method"),
        ("GET", f"{NODES}/n1", None, Response.of({"message": "no"}, 404), "an error of another form"),
    ],
)
def test_the_judge_reads_requests_and_errors(verb, target, body, answer, fault):
    """A field or a parameter that nobody knows, a body where none belongs, an error that no client could read."""
    content = b"" if body is None else json.dumps(body).encode()
    response = answer if isinstance(answer, Response) else Response.of(answer)
    (found,) = faults(Request.parse(verb, target, {}, content), response)
    assert fault in found


def test_drift_names_what_stands_on_one_side(monkeypatch):
    """A field and a value of an enum that only the document has."""
    known = json.loads(json.dumps(document("tpu.v2")))
    node = known["schemas"]["Node"]["properties"]
    node["colour"] = {"type": "string"}
    node["state"]["enum"].append("TIRED")
    del node["health"]
    monkeypatch.setattr(drift, "document", lambda _: known)
    found = set(drift.differences("tpu.v2"))
    assert {
        "Node.colour: only in the document",
        "Node.state: value TIRED only in the document",
        "Node.health: only in the client",
    } <= found
