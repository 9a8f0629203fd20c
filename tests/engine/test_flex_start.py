"""A flex-start TPU: asked for by v2alpha1, waited for, ended by the service after its time, and asked for again."""

import pytest

from orchestrator.domain.observation import NodeState
from orchestrator.domain.text.units import Duration
from orchestrator.errors import TpuctlError
from tests.engine.engine_lab import ControllerKilled, EngineLab
from tests.engine.test_queued_tpu import queued, ready

ZONE, ELSEWHERE = "us-west4-a", "us-west4-b"


def flex(**overrides):
    """Return a spec whose TPU is a flex-start one of two hours."""
    base = {"tpu__request": "flex-start", "tpu__spot": False, "tpu__zones": [ZONE]}
    return queued(**{**base, "tpu__max_run_duration": Duration(7200), **overrides})


def test_up_asks_for_it_as_the_api_has_it(lab):
    """Neither a tier nor a scheduling of its own; the name is that of the node."""
    lab.up(flex())
    assert lab.queued() == {"demo-tpu-g1": "ACTIVE"}
    assert lab.nodes() == {"demo-tpu-g1": NodeState.READY}
    (asked,) = lab.cloud.queued_resources()
    assert asked.body["provisioningModel"] == "FLEX_START"
    assert asked.body["runDuration"] == {"maxRunDuration": "7200s"}
    assert not {"spot", "guaranteed", "reservationName"} & set(asked.body)
    assert "schedulingConfig" not in asked.wanted[0].body


def test_after_its_time_the_next_one_is_asked_for(lab):
    """The dead request is deleted: it would hold quota. One TPU at a time, one request for each."""
    controller = lab.up(flex())
    for number in (2, 3):
        controller.run(lambda r, n=number: f"demo-tpu-g{n}" in lab.nodes(), passes=2000)
        controller.run(ready(lab), passes=2000)
        controller.run(seconds=60)
        assert lab.queued() == {f"demo-tpu-g{number}": "ACTIVE"}
    assert lab.mutations()["tpu.queuedResources.create"] == 3
    assert any("the service has ended it" in change for change in reasons(controller))
    assert preemptions(controller) == [
        f"TPU demo-tpu-g{n} has had its time (2h), after which Google ends a flex-start TPU" for n in (1, 2)
    ]


def preemptions(controller):
    """Return the events of lost TPUs, without the work that was lost."""
    return [e.message.partition(";")[0] for e in controller.events if e.kind == "preempted"]


def reasons(controller):
    """Return why things were deleted."""
    return [str(e.data.get("message", "")) for e in controller.events if e.kind == "tpu-delete"]


def test_a_zone_that_does_not_offer_flex_start_gives_way_to_the_next(tmp_path):
    """No list shows which zones have it; the refusal is no reason to give up."""
    lab = EngineLab(tmp_path)
    controller = lab.up(flex(tpu__zones=[ELSEWHERE, ZONE]))
    assert list(lab.queued().values()) == ["ACTIVE"]
    assert controller.record.node.zone == ZONE
    assert any("TPU-351" in e.message for e in controller.events if e.kind == "refused")


def test_where_no_zone_offers_it_the_asking_ends(tmp_path):
    """Waiting would not help, and the hint says what would."""
    lab = EngineLab(tmp_path)
    with pytest.raises(TpuctlError) as caught:
        lab.up(flex(tpu__zones=[ELSEWHERE]))
    assert "TPU-351" in caught.value.message
    assert "tpu.zones" in caught.value.hint
    assert lab.nodes() == {}


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_controller_that_dies_at_the_create_leaves_one_request(lab, moment):
    """The name is the key against doubles, in this version of the API as well."""

    def kill(what):
        if what.startswith("POST /v2alpha1/"):
            raise ControllerKilled

    setattr(lab.wire, moment, kill)
    with pytest.raises(ControllerKilled):
        lab.up(flex())
    setattr(lab.wire, moment, lambda what: None)
    lab.up(flex())
    assert len(lab.queued()) == 1
    assert list(lab.nodes().values()) == [NodeState.READY]


def test_down_leaves_nothing(lab):
    """The request goes by v2, by force, with its node."""
    controller = lab.up(flex())
    assert controller.deletion().machines() == ()
    assert (lab.queued(), lab.nodes()) == ({}, {})
