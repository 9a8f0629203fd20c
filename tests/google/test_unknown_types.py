"""Operations that name types, fields and details this client does not know: their id, done and error are read."""

import pytest

from orchestrator.domain.observation import Operation
from orchestrator.domain.plan import Kind, Verb
from orchestrator.errors import Retry
from orchestrator.google.nodes import TpuNodes
from orchestrator.google.queued_resources import TpuQueuedResources
from tests.google.adapter_lab import ZONE, a_node, canned

NAME = f"projects/local-project/locations/{ZONE}/operations/operation-1783693569476-656428598c851"
BORN = "2026-11-22T10:00:00.123456789Z"
METADATA = {"createTime": BORN, "target": "t", "verb": "create", "cancelRequested": False, "apiVersion": "v2"}
TYPES = (
    "google.cloud.tpu.v2.OperationMetadata",
    "google.cloud.common.OperationMetadata",
    "google.cloud.tpu.v2alpha1.OperationMetadata",
    "google.cloud.nobody.knows.This",
)
POLLED = Operation(NAME, Kind.NODE, Verb.CREATE, "demo-tpu-g3", ZONE, 3)


def body(kind, **more):
    """Return an operation as the service may answer it."""
    return {
        "name": NAME,
        "metadata": {"@type": f"type.googleapis.com/{kind}", **METADATA, "newField": {"a": [1, None]}},
        "done": False,
        "aFieldOfTomorrow": "x",
        **more,
    }


@pytest.mark.parametrize("kind", TYPES)
def test_a_create_keeps_its_operation_whatever_type_its_metadata_has(kind):
    """The id is what later shows a stockout; the time of creation is read from any type that has it."""
    with canned(lambda _: (200, body(kind))) as server:
        operation = TpuNodes(server.clients()).create(a_node())
    assert operation.id == NAME
    assert operation.started_at == pytest.approx(1795341600, abs=1)


@pytest.mark.parametrize("kind", TYPES)
def test_a_delete_keeps_its_operation_too(kind):
    """A node that is being deleted is not deleted again at the next look."""
    with canned(lambda _: (200, body(kind))) as server:
        assert TpuNodes(server.clients()).delete("demo-tpu-g3", ZONE).id == NAME


@pytest.mark.parametrize("kind", TYPES)
def test_a_stockout_is_recognised_inside_an_operation_of_any_type(kind):
    """The error decides about the next zone; details of an unknown type do not hide it."""
    details = [
        {"@type": "type.googleapis.com/google.rpc.Tomorrow", "anything": [1, {"b": 2}]},
        {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "STOCKOUT", "newField": 1},
    ]
    error = {"code": 8, "message": "There is no more capacity in the zone", "details": details}
    with canned(lambda _: (200, body(kind, done=True, error=error))) as server:
        result = TpuNodes(server.clients()).poll(POLLED)
    assert (result.done, result.retry) == (True, Retry.CAPACITY)


@pytest.mark.parametrize("kind", ["google.cloud.tpu.v2.Node", "google.cloud.tpu.v2alpha1.Node", "x.Y"])
def test_an_operation_is_done_whatever_its_response_is(kind):
    """A response with an enum value, a field or a type of tomorrow is stepped over."""
    response = {"@type": f"type.googleapis.com/{kind}", "name": "n", "state": "DREAMING", "protectionTier": 9}
    with canned(lambda _: (200, body(TYPES[1], done=True, response=response))) as server:
        result = TpuNodes(server.clients()).poll(POLLED)
    assert (result.done, result.retry) == (True, None)


def test_a_node_with_unknown_fields_and_enum_values_is_observed():
    """A state that this client does not know is an unspecified one; the node stays observed."""
    node = {
        "name": f"projects/local-project/locations/{ZONE}/nodes/demo-tpu-g3", "state": "DREAMING",
        "health": "BETTER_THAN_EVER", "labels": {"tpuctl-deployment": "demo"},
        "upcomingMaintenance": {"x": 1},
        "schedulingConfig": {"protectionTier": "GOLD"},
    }  # fmt: skip
    with canned(lambda _: (200, {"nodes": [node], "newList": []})) as server:
        (observed,) = TpuNodes(server.clients()).labelled("tpuctl-deployment", "demo", [ZONE]).value
    assert observed.name == "demo-tpu-g3"


def test_a_queued_resource_keeps_its_operation_too():
    """The queue's operations go the same way."""
    with canned(lambda _: (200, body(TYPES[1]))) as server:
        assert TpuQueuedResources(server.clients()).delete("demo-tpu-g3", ZONE, force=True).id == NAME
