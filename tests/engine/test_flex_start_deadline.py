"""A deadline whose last resort is flex-start: asked for before on demand, for half an hour; then on demand."""

import pytest

from orchestrator.domain.observation import NodeState
from orchestrator.domain.plan import Kind
from tests.engine.engine_lab import ControllerKilled, EngineLab
from tests.engine.test_deadline import HOUR, LabTraining, due, tiers, to_the_end

ZONE, WITHOUT = "us-west4-a", "us-west4-b"
FLEX, PLAIN = "tpu.queuedResources.create", "tpu.nodes.create"


@pytest.fixture
def lab(tmp_path):
    """Return a cloud whose machines train, without spot."""
    lab = EngineLab(tmp_path, latency="scaled", stockouts=frozenset({f"{ZONE}/spot", f"{WITHOUT}/spot"}))
    lab.training = LabTraining(lab)
    return lab


def resort(zone=ZONE, **overrides):
    """Return a spec of the job of the deadline's tests that allows flex-start."""
    return due(**{"tpu__zones": [zone], "watch__last_resort": "flex-start", **overrides})


def on_demand_was_paid(lab):
    """Return a condition: something on demand was paid for."""
    return lambda result: False in tiers(lab)


def test_flex_start_helps_out_where_spot_does_not(lab):
    """Its TPU works, and so does the one after a look for spot in vain. The bill counts them as on demand."""
    controller = lab.controller(resort())
    controller.want()
    controller.run(on_demand_was_paid(lab), passes=2000)
    (request,) = lab.cloud.queued_resources()
    assert (request.body["provisioningModel"], request.state.name) == ("FLEX_START", "ACTIVE")
    assert request.body["queueingPolicy"] == {"validUntilDuration": "1800s"}
    took, result = to_the_end(controller)
    assert result.plan.outcome.value == "done"
    assert took < 3.2 * HOUR
    assert set(tiers(lab)) == {False}
    assert {span.spot for span in controller.record.spans if span.kind is Kind.NODE} == {False}


def test_a_zone_that_does_not_offer_it_gives_on_demand_in_time(lab):
    """The refusal costs a moment and says nothing about on demand."""
    start = lab.clock.now()
    controller = lab.controller(resort(WITHOUT))
    controller.want()
    _, result = to_the_end(controller)
    assert result.plan.outcome.value == "done"
    assert lab.clock.now() - start < 3.2 * HOUR
    assert lab.cloud.calls[FLEX] == 1
    assert tiers(lab) == [False]
    assert lab.queued() == {}


def test_a_queue_that_gives_nothing_gives_way_to_on_demand_after_half_an_hour(lab):
    """There is no second request of flex-start for the same need."""
    lab.cloud.fail_next(FLEX, ["no-capacity"])
    controller = lab.controller(resort("us-west4-a", watch__deadline=due("5h").watch.deadline))
    controller.want()
    controller.run(lambda r: "WAITING_FOR_RESOURCES" in lab.queued().values(), passes=2000)
    asked = lab.clock.now()
    controller.run(on_demand_was_paid(lab), passes=2000)
    assert 0.4 * HOUR < lab.clock.now() - asked < 0.75 * HOUR
    assert lab.cloud.calls[FLEX] == 1
    assert list(lab.nodes().values()) == [NodeState.READY]


def test_a_controller_that_dies_at_the_request_leaves_one_tpu_and_one_request(lab):
    """The record says before the call what was asked for; what the next one does not adopt it deletes."""

    def kill(what):
        if what.startswith("POST /v2alpha1/"):
            raise ControllerKilled

    lab.wire.after = kill
    controller = lab.controller(resort())
    controller.want()
    with pytest.raises(ControllerKilled):
        controller.run(on_demand_was_paid(lab), passes=2000)
    lab.wire.after = lambda what: None
    again = lab.controller(resort())
    assert (
        again.record.deadline.flex_start
        == again.record.deadline.on_demand
        == (again.record.node.incarnation,)
    )
    again.run(on_demand_was_paid(lab), passes=2000)
    again.run(seconds=300, passes=500)
    name = f"demo-tpu-g{again.record.node.incarnation}"
    assert (lab.queued(), lab.nodes()) == ({name: "ACTIVE"}, {name: NodeState.READY})


def test_without_the_setting_flex_start_is_never_asked_for(lab):
    """On demand is what a deadline pays for."""
    controller = lab.controller(due(tpu__zones=[ZONE]))
    controller.want()
    controller.run(on_demand_was_paid(lab), passes=2000)
    assert lab.cloud.calls[FLEX] == 0
    assert lab.cloud.calls[PLAIN] >= 2
