"""A TPU through the queue: asked for, waited for, taken, failed, lost and deleted, with all that it leaves."""

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.observation import NodeState
from orchestrator.domain.plan import Kind
from orchestrator.domain.text.units import Duration
from orchestrator.errors import TpuctlError
from orchestrator.pricing.cost_so_far import cost_so_far
from tests.engine.engine_lab import OTHER_ZONE, QUOTA, ZONE, ControllerKilled, EngineLab, one_zone_spec
from tests.kit.records import record_of

CREATE, DELETE = "tpu.queuedResources.create", "tpu.queuedResources.delete"


def queued(**overrides):
    """Return a spec whose TPU is asked for through the queue."""
    base = {"tpu__request": "queued", "vm": "none", "watch__poll": Duration(60)}
    return one_zone_spec(**{**base, **overrides})


def ready(lab):
    """Return a condition: some node is READY."""
    return lambda result: NodeState.READY in lab.nodes().values()


@pytest.mark.parametrize("latency", ["scaled", "realistic"])
def test_up_waits_in_the_queue_and_gets_one_tpu(tmp_path, latency):
    """One request, one node of the same name with our labels; nothing is asked for beside the queue."""
    lab = EngineLab(tmp_path, latency=latency)
    controller = lab.up(queued())
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}
    assert lab.queued() == {"demo-tpu-g1": "ACTIVE"}
    assert lab.mutations()[CREATE] == 1
    assert lab.mutations()["tpu.nodes.create"] == 0
    assert controller.record.node.incarnation == 1
    assert controller.record.refusals == ()


def test_waiting_for_hours_is_no_failure_and_costs_nothing(tmp_path):
    """Far beyond the time that a node may stay CREATING, its place in the queue stays, and its age is shown."""
    lab = EngineLab(tmp_path, latency="realistic", stockouts=frozenset({ZONE}))
    controller = lab.controller(queued())
    controller.want()
    controller.run(seconds=2 * 3600, passes=2000)
    assert lab.queued() == {"demo-tpu-g1": "WAITING_FOR_RESOURCES"}
    assert lab.mutations()[CREATE] == 1
    assert any("in the queue since " in text for text in controller.waiting)
    bill = cost_so_far(queued(), load_catalog(), controller.record, lab.clock.now())
    assert not any(span.kind is Kind.NODE for span in controller.record.spans), bill
    lab.change(stockouts=frozenset())
    controller.run(ready(lab))
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}


def test_a_preempted_tpu_takes_its_suspended_queued_resource_along(lab):
    """It would hold quota for ever: the quota of one TPU is enough for one life after the other."""
    lab.change(quotas={(QUOTA, ZONE): 8})
    controller = lab.up(queued())
    for _ in range(3):
        (name,) = lab.nodes()
        lab.cloud.preempt(name, notice=False)
        lab.wait(5)
        assert lab.queued() == {name: "SUSPENDED"}
        controller.run(ready(lab))
        controller.run(seconds=60)
        (successor,) = lab.nodes()
        assert successor != name
        assert lab.queued() == {successor: "ACTIVE"}
    assert controller.record.node.preemptions == 3
    assert all(lab.cloud.calls[method] <= 3 * 2 + 1 for method in (CREATE, DELETE))


def test_a_node_that_a_user_deletes_is_requested_again(lab):
    """Its queued resource stays behind SUSPENDED, by the user; it goes as well."""
    controller = lab.up(queued())
    controller.cloud.nodes.delete("demo-tpu-g1", ZONE)
    lab.wait(5)
    controller.run(ready(lab))
    controller.run(seconds=60)
    assert lab.queued() == {"demo-tpu-g2": "ACTIVE"}


def test_a_request_that_leaves_the_queue_goes_on_in_the_next_zone(tmp_path):
    """After `tpu.wait` in a zone without capacity the request is FAILED: it is deleted, the next zone is asked."""
    lab = EngineLab(tmp_path, latency="realistic", stockouts=frozenset({ZONE}))
    controller = lab.controller(queued(tpu__zones=[ZONE, OTHER_ZONE], tpu__wait=Duration(1800)))
    controller.want()
    controller.run(ready(lab), passes=1000)
    controller.run(seconds=120)
    assert lab.queued() == {"demo-tpu-g2": "ACTIVE"}
    assert controller.record.node.zone == OTHER_ZONE
    assert [e.kind for e in controller.events].count("refused") == 1
    assert "preempted" not in controller.kinds()


@pytest.mark.parametrize(
    ("fate", "requests"), [("fall-back", 1), ("late-failure", 2), ("never-active", 2), ("no-capacity:600", 1)]
)
def test_provisioning_that_goes_wrong_ends_in_a_ready_tpu(tmp_path, fate, requests):
    """One that falls back keeps its place; one that fails, or never gets done, is replaced by a new request."""
    lab = EngineLab(tmp_path, latency="realistic")
    lab.cloud.fail_next(CREATE, [fate])
    controller = lab.controller(queued())
    controller.want()
    controller.run(ready(lab), passes=1000)
    controller.run(seconds=300)
    assert lab.mutations()[CREATE] == requests
    assert lab.queued() == {f"demo-tpu-g{requests}": "ACTIVE"}
    assert controller.record.node.preemptions == (fate == "late-failure"), "its machine was taken away"


def test_a_permission_that_is_missing_ends_at_once(lab):
    """A refusal on the call is what it is for nodes: without a permission nothing is tried again."""
    lab.change(denied_permissions=frozenset({CREATE}))
    with pytest.raises(TpuctlError):
        lab.up(queued())
    assert lab.cloud.calls[CREATE] == 1


@pytest.mark.parametrize("wait", [0, 3, 30, 3600])
def test_down_leaves_nothing_in_the_queue(tmp_path, wait):
    """Whatever state the request is in, `down` deletes it by force and proves that nothing is left (I1)."""
    lab = EngineLab(tmp_path, latency="realistic", stockouts=frozenset({ZONE} if wait == 3600 else ()))
    controller = lab.controller(queued())
    controller.want()
    controller.run(seconds=wait, passes=1000)
    assert controller.deletion().machines() == ()
    assert (lab.queued(), lab.nodes()) == ({}, {})


def test_down_finds_a_request_without_record_and_bucket(lab):
    """On a new computer the queue is looked at though the file says `request: node` by now."""
    lab.change(stockouts=frozenset({ZONE}))
    controller = lab.controller(queued())
    controller.want()
    controller.run(seconds=60)
    controller.cloud.buckets.delete(lab.bucket)
    elsewhere = lab.controller(one_zone_spec(vm="none"), state="another computer")
    assert elsewhere.record == record_of(fence=elsewhere.record.fence)
    assert elsewhere.deletion().machines() == ()
    assert lab.queued() == {}


def test_a_request_whose_answer_was_lost_is_adopted(lab):
    """The name is taken, by our own request: one TPU, asked for once."""
    lab.cloud.fail_next(CREATE, ["drop-answer"])
    controller = lab.up(queued())
    assert lab.queued() == {"demo-tpu-g1": "ACTIVE"}
    assert controller.record.node.incarnation == 1


def test_a_controller_killed_after_the_request_finds_it_again(lab):
    """The next one waits on in the same place of the queue."""
    lab.change(stockouts=frozenset({ZONE}))

    def kill(what):
        if what.endswith("/queuedResources"):
            raise ControllerKilled

    lab.wire.after = kill
    controller = lab.controller(queued())
    controller.want()
    with pytest.raises(ControllerKilled):
        controller.run(seconds=60)
    lab.wire.after = lambda what: None
    lab.wait(90)
    lab.change(stockouts=frozenset())
    lab.up(queued())
    assert lab.queued() == {"demo-tpu-g1": "ACTIVE"}
    assert lab.mutations()[CREATE] == 1


def test_a_change_of_request_keeps_what_runs_and_forgets_nothing(lab):
    """The running TPU stays; when it is lost the next one is asked for directly, and the queue is emptied."""
    lab.up(queued())
    controller = lab.up(one_zone_spec(vm="none"))
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.wait(5)
    controller.run(ready(lab))
    controller.run(seconds=60)
    assert lab.nodes() == {"demo-tpu-g2": NodeState.READY}
    assert lab.queued() == {}
    assert lab.mutations()["tpu.nodes.create"] == 1


def test_a_partial_list_of_the_queue_is_unknown(lab):
    """A queue that cannot be observed proves nothing: not that it is gone, nor that it is to be requested (I7)."""
    controller = lab.up(queued())
    lab.cloud.preempt("demo-tpu-g1", notice=False)
    lab.wait(5)
    lab.cloud.fail_next("tpu.queuedResources.list", ["unreachable"])
    before = lab.mutations()
    result = controller.one_pass()
    assert any("not known" in text for text in result.plan.waiting)
    assert lab.mutations() == before
