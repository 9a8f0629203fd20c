"""What cannot be observed is unknown, and nothing is created or deleted because of it (I7)."""

import pytest

from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.domain.plan import Kind
from orchestrator.emulator.http.error_bodies import plain_error
from orchestrator.emulator.http.router import Response
from orchestrator.errors import NotFoundError
from tests.engine.engine_lab import OTHER_ZONE, ZONE, one_zone_spec

LOOKS = {
    "nodes": ("tpu.nodes.list", "transient"),
    "vm": ("compute.instances.get", "drop-answer"),
    "bucket": ("storage.buckets.list", "drop-answer"),
    "heartbeats": ("storage.objects.list", "drop-answer"),
}


@pytest.mark.parametrize("observed", LOOKS)
def test_an_answer_that_does_not_come_changes_nothing(lab, observed):
    """503 on one look after another for two hours: no create, no delete, and then it goes on as before."""
    controller = lab.up()
    before = lab.mutations()
    method, fault = LOOKS[observed]
    for _ in range(8):
        lab.wait(900)
        lab.cloud.fail_next(method, [fault] * 2)  # the lease, too, lists objects once an hour
        result = controller.one_pass()
        lab.cloud.kernel.state.faults.clear()
        assert isinstance(getattr(result.world, observed), Unknown)
        assert result.plan.empty
        assert result.plan.waiting
    controller.up()
    assert lab.mutations() == before


@pytest.mark.parametrize("observed", ["nodes", "heartbeats"])
def test_what_was_lost_meanwhile_is_observed_only_when_lists_are_back(lab, observed):
    """A node that vanishes while nobody can look is not replaced before it was missed twice."""
    controller = lab.up()
    method, fault = LOOKS[observed]
    lab.cloud.set_node_state("demo-tpu-g1", "vanish")
    lab.cloud.fail_next(method, [fault] * 2)
    for _ in range(2):
        assert controller.one_pass().plan.empty
        lab.wait(20)
    controller.up()
    assert lab.nodes() == {"demo-tpu-g2": NodeState.READY}


def test_a_zone_hidden_from_the_project_makes_the_whole_list_unknown(lab):
    """One of two zones answers 403: the node may be there, so none is made."""
    controller = lab.controller(one_zone_spec(tpu__zones=[ZONE, OTHER_ZONE]))
    controller.want()
    lab.change(hidden_zones=frozenset({OTHER_ZONE}))
    result = controller.one_pass()
    assert isinstance(result.world.nodes, Unknown)
    assert lab.mutations()["tpu.nodes.create"] == 0


def test_a_partial_list_is_no_proof_of_absence(lab, monkeypatch):
    """`unreachable` in a list that answers 200 makes it unknown, however long it lasts."""
    controller = lab.up()
    real = lab.wire.answer

    def partial(request, timeout):
        if request.path.startswith("/v2/") and request.path.endswith("/nodes"):
            return Response.of({"nodes": [], "unreachable": [f"locations/{ZONE}"]})
        return real(request, timeout)

    monkeypatch.setattr(lab.wire, "answer", partial)
    before = lab.mutations()
    for _ in range(4):
        result = controller.one_pass()
        assert isinstance(result.world.nodes, Unknown)
        assert result.plan.empty
        lab.wait(60)
    assert lab.mutations() == before


@pytest.mark.parametrize("way", ["node", "queued"])
def test_a_create_whose_operation_is_forgotten_is_not_a_failed_one(lab, monkeypatch, way):
    """The service does not know it any more, and a list is old: one absence makes neither a second TPU nor a VM."""
    controller = lab.controller(one_zone_spec(tpu__request=way))
    controller.want()
    made = {f"tpu.{'nodes' if way == 'node' else 'queuedResources'}.create": 1, "compute.instances.insert": 1}
    while not made.items() <= lab.mutations().items():
        controller.one_pass()
    real = lab.wire.answer

    def forgetful(request, timeout):
        if request.method == "GET" and request.path.endswith(("/nodes", "/queuedResources")):
            return Response.of({})
        if request.method == "GET" and ("/operations/" in request.path or "/instances" in request.path):
            reason = "NOT_FOUND" if request.path.startswith("/v2/") else "notFound"
            return plain_error(request, 404, reason, "not found")
        return real(request, timeout)

    monkeypatch.setattr(lab.wire, "answer", forgetful)
    for _ in range(2):
        controller.one_pass()
        lab.wait(25)
    assert (controller.record.operations, controller.record.refusals) == ((), ())
    monkeypatch.setattr(lab.wire, "answer", real)
    controller.up()
    assert made.items() <= lab.mutations().items()


@pytest.mark.parametrize("fault", [ValueError("no such month"), NotFoundError("no such project")])
def test_an_operation_that_cannot_be_polled_stays_open_and_the_pass_goes_on(lab, monkeypatch, fault):
    """One answer that nobody has foreseen hides that operation, and nothing else."""
    controller = lab.controller(one_zone_spec())
    controller.want()
    while not controller.record.operations:
        controller.one_pass()
    lab.wait(120)
    open_ones, poll = controller.record.operations, type(controller.cloud.vms).poll

    def malformed(self, operation):
        raise fault

    monkeypatch.setattr(type(controller.cloud.vms), "poll", malformed)
    result = controller.one_pass()
    assert isinstance(result.world.nodes, Present)
    assert controller.record.operations == tuple(o for o in open_ones if o.kind is Kind.VM) != ()
    monkeypatch.setattr(type(controller.cloud.vms), "poll", poll)
    controller.up()
    assert controller.record.operations == ()


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b'{"phase": "dancing"}', b'{"phase": "run", "worker": 0}']
)
def test_a_heartbeat_that_cannot_be_read_is_unknown(lab, body):
    """A worker that cannot be understood is not a worker that is gone: its job is left alone."""
    controller = lab.up()
    lab.machines.running.clear()
    lab.clock.advance(600)
    lab.put(".tpuctl/heartbeat/1/0", body)
    result = controller.one_pass()
    assert isinstance(result.world.heartbeats, Unknown)
    assert result.plan.empty


def test_a_bucket_deleted_by_hand_is_said_and_not_papered_over(lab):
    """No empty bucket takes the place of one that held checkpoints."""
    controller = lab.up()
    controller.cloud.buckets.delete(lab.bucket)
    lab.machines.running.clear()
    before = lab.mutations()["storage.buckets.insert"]
    result = controller.one_pass()
    assert any("bucket" in text for text in result.plan.waiting)
    assert lab.mutations()["storage.buckets.insert"] == before
