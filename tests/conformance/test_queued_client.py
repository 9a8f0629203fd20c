"""The official TPU client and queued resources of the local cloud: over HTTP and in-process, the same cases."""

import datetime as dt
from dataclasses import replace

import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.protobuf import duration_pb2

from tests.conformance.clients_kit import KINDS, QUICK, open_clients
from tests.emulator.emulator_lab import PROJECT, UUID, ZONE

PARENT = f"projects/{PROJECT}/locations/{ZONE}"
QUEUED = f"{PARENT}/queuedResources/q1"
State = tpu_v2.QueuedResourceState.State
By = tpu_v2.QueuedResourceState.StateInitiator
NodeSpec = tpu_v2.QueuedResource.Tpu.NodeSpec


@pytest.fixture(params=KINDS)
def cloud(request):
    """Open the clients, over HTTP and in-process."""
    with open_clients(request.param) as clients:
        yield clients


def node(**fields):
    """Return the node to make."""
    kind = {"accelerator_type": "v5litepod-8", "runtime_version": "v2-alpha-tpuv5-lite"}
    return tpu_v2.Node(**kind, **fields)


def request(name="q1", request_id="", **fields):
    """Return the request for one spot node."""
    fields.setdefault("spot", {})
    spec = NodeSpec(parent=PARENT, node_id=f"{name}-node", node=node(labels={"a": "1"}))
    wanted = {"tpu": {"node_spec": [spec]}, **fields}
    return {
        "parent": PARENT,
        "queued_resource_id": name,
        "queued_resource": wanted,
        "request_id": request_id,
    }


def wait_for(cloud, wanted):
    """Return the queued resource when it is in the state *wanted*."""
    for _ in range(100):
        found = cloud.tpu.get_queued_resource(name=QUEUED)
        if found.state.state == wanted:
            return found
        cloud.pause(0.1)
    raise AssertionError(found)


def test_created_read_listed_lost_and_deleted(cloud):
    """The whole lifetime through the client's own types and futures."""
    operation = cloud.tpu.create_queued_resource(request())
    cloud.pause(0.3)
    assert operation.result(timeout=60).name == QUEUED
    assert operation.metadata.target == QUEUED
    found = wait_for(cloud, State.ACTIVE)
    (spec,) = found.tpu.node_spec
    assert (spec.node_id, dict(spec.node.labels), "spot" in found) == ("q1-node", {"a": "1"}, True)
    assert "active_data" in found.state
    assert abs(found.create_time.timestamp() - cloud.lab.clock.now()) < 60
    (made,) = cloud.tpu.list_nodes(parent=PARENT)
    assert made.queued_resource.endswith("/queuedResources/q1")
    with pytest.raises(exceptions.BadRequest, match="without force"):
        cloud.tpu.delete_queued_resource(name=QUEUED)
    cloud.lab.cloud.preempt("q1-node", notice=False)
    found = wait_for(cloud, State.SUSPENDED)
    assert (found.state.state_initiator, "suspended_data" in found.state) == (By.SERVICE, True)
    assert list(cloud.tpu.list_nodes(parent=PARENT)) == []
    deletion = cloud.tpu.delete_queued_resource(name=QUEUED)
    cloud.pause(0.2)
    deletion.result(timeout=60)
    with pytest.raises(exceptions.NotFound):
        cloud.tpu.get_queued_resource(name=QUEUED)


@pytest.fixture
def quiet():
    """Open the clients in-process."""
    with open_clients("in-process") as clients:
        yield clients


def test_force_deletes_the_nodes_too(quiet):
    """The flag reaches the cloud; nodes and queued resource are gone."""
    quiet.tpu.create_queued_resource(request())
    wait_for(quiet, State.ACTIVE)
    deletion = quiet.tpu.delete_queued_resource(request={"name": QUEUED, "force": True})
    assert quiet.tpu.get_queued_resource(name=QUEUED).state.state == State.DELETING
    quiet.pause(1)
    deletion.result(timeout=60)
    assert list(quiet.tpu.list_queued_resources(parent=PARENT)) == []
    assert list(quiet.tpu.list_nodes(parent=PARENT)) == []


def test_a_reset_answers_with_the_queued_resource(quiet):
    """Its future has the client's own type; from another state it is refused."""
    quiet.tpu.create_queued_resource(request())
    wait_for(quiet, State.ACTIVE)
    operation = quiet.tpu.reset_queued_resource(name=QUEUED)
    quiet.pause(1)
    assert operation.result(timeout=60).name == QUEUED
    quiet.lab.cloud.set_queued_state("q1", "SUSPENDING")
    with pytest.raises(exceptions.BadRequest):
        quiet.tpu.reset_queued_resource(name=QUEUED)


def test_windows_are_sent_in_the_clients_types():
    """Durations, times and intervals arrive; one that gets nothing in time is FAILED with an error."""
    with open_clients("in-process", stockouts=frozenset({ZONE})) as cloud:
        now = dt.datetime.fromtimestamp(cloud.lab.clock.now(), dt.timezone.utc)
        later = now + dt.timedelta(seconds=60)
        policies = [
            {"valid_until_duration": duration_pb2.Duration(seconds=60)},
            {"valid_until_time": later},
            {"valid_interval": {"start_time": now, "end_time": later}},
        ]
        for index, policy in enumerate(policies):
            cloud.tpu.create_queued_resource(request(f"q{index + 1}", queueing_policy=policy))
        cloud.pause(59)
        states = [found.state.state for found in cloud.tpu.list_queued_resources(parent=PARENT)]
        assert states == [State.WAITING_FOR_RESOURCES] * 3
        cloud.pause(2)
        failed = list(cloud.tpu.list_queued_resources(parent=PARENT))
        assert {(q.state.state, q.state.failed_data.error.code) for q in failed} == {(State.FAILED, 4)}


def test_a_guaranteed_one_with_several_slices(quiet):
    """The tier and the parameters of a multislice reach the cloud; the specs are shown one by one."""
    spec = NodeSpec(parent=PARENT, multislice_params={"node_count": 2, "node_id_prefix": "np"}, node=node())
    wanted = {"tpu": {"node_spec": [spec]}, "guaranteed": {"min_duration": {"seconds": 3600}}}
    body = {"parent": PARENT, "queued_resource_id": "q1", "queued_resource": wanted}
    quiet.tpu.create_queued_resource(body)
    found = wait_for(quiet, State.ACTIVE)
    assert [spec.node_id for spec in found.tpu.node_spec] == ["np-0", "np-1"]
    assert found.guaranteed.min_duration.total_seconds() == 3600
    nodes = list(quiet.tpu.list_nodes(parent=PARENT))
    assert [(n.multislice_node, n.scheduling_config.spot) for n in nodes] == [(True, False)] * 2


def test_refusals_are_the_clients_exceptions(quiet):
    """Conflict, NotFound for a moment, quota on the call; and the same request id is the same operation."""
    first = quiet.tpu.create_queued_resource(request(request_id=UUID))
    again = quiet.tpu.create_queued_resource(request(request_id=UUID))
    assert first.operation.name == again.operation.name
    with pytest.raises(exceptions.Conflict):
        quiet.tpu.create_queued_resource(request())
    quiet.lab.cloud.fail_next("tpu.queuedResources.create", ["quota exceeded"])
    with pytest.raises(exceptions.TooManyRequests):
        quiet.tpu.create_queued_resource(request("q2"))
    with pytest.raises(exceptions.NotFound):
        quiet.tpu.get_queued_resource(name=QUEUED + "0")


def test_a_new_one_cannot_be_read_at_once():
    """NotFound for a moment right after its creation."""
    with open_clients("in-process", latency=replace(QUICK, queued_hidden=1.0)) as cloud:
        cloud.tpu.create_queued_resource(request())
        with pytest.raises(exceptions.NotFound):
            cloud.tpu.get_queued_resource(name=QUEUED)
        cloud.pause(1)
        assert cloud.tpu.get_queued_resource(name=QUEUED).name == QUEUED


def test_pages_are_followed_and_places_without_an_answer_named(quiet):
    """A page size of one lists all; `unreachable` comes with the page."""
    for index in range(3):
        quiet.tpu.create_queued_resource(request(f"q{index}"))
    wish = {"parent": PARENT, "page_size": 1}
    names = [found.name.rpartition("/")[2] for found in quiet.tpu.list_queued_resources(wish)]
    assert names == ["q0", "q1", "q2"]
    quiet.lab.cloud.fail_next("tpu.queuedResources.list", ["unreachable"])
    (page,) = quiet.tpu.list_queued_resources(parent=PARENT).pages
    assert list(page.unreachable) == [PARENT]
