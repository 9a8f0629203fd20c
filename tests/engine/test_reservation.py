"""A TPU out of a reservation: asked for by its full name, waited for, and given up when there is no such one."""

import pytest

from orchestrator.errors import TpuctlError
from tests.engine.engine_lab import PROJECT, ZONE, EngineLab
from tests.engine.test_queued_tpu import queued

MINE = {(ZONE, "mine"): "v5litepod-8"}
FULL = f"projects/{PROJECT}/locations/{ZONE}/reservations/mine"


def reserved(reservation="mine", **overrides):
    """Return a spec whose TPU comes out of a reservation."""
    return queued(tpu__reservation=reservation, tpu__spot=False, **overrides)


@pytest.mark.parametrize("name", ["mine", FULL, "-"])
def test_up_takes_the_tpu_out_of_the_reservation(tmp_path, name):
    """A zone without any other capacity does not matter; the API gets the full name in any case."""
    lab = EngineLab(tmp_path, reservations=MINE, stockouts=frozenset({ZONE}))
    lab.up(reserved(name))
    assert lab.queued() == {"demo-tpu-g1": "ACTIVE"}
    (asked,) = lab.cloud.queued_resources()
    assert asked.body["reservationName"] == FULL.replace("mine", name.rpartition("/")[2])


def test_a_reservation_in_use_is_waited_for_as_any_place_in_the_queue(tmp_path):
    """One request only; nothing is requested outside of the reservation."""
    lab = EngineLab(tmp_path, reservations=MINE)
    other = lab.controller(reserved(name="other"), state="other")
    other.cloud.queued.create(other.blueprint.new_node(other.record, ZONE, 1), None)
    controller = lab.controller(reserved())
    controller.want()
    controller.run(seconds=3600, passes=200)
    assert lab.queued() == {"other-tpu-g1": "ACTIVE", "demo-tpu-g1": "WAITING_FOR_RESOURCES"}


def test_a_reservation_that_is_not_there_ends_the_asking_and_names_the_setting(tmp_path):
    """Without a name the same answer means that the zone is empty, and is no end."""
    lab = EngineLab(tmp_path, reservations=MINE)
    controller = lab.controller(reserved("yours"))
    with pytest.raises(TpuctlError) as caught:
        controller.up()
    assert f"TPU-123 there is no reservation 'yours' in {ZONE}" in caught.value.message
    assert "tpu.reservation" in caught.value.hint
    assert "gcloud alpha compute tpus reservations list" in caught.value.hint
    assert lab.mutations()["tpu.queuedResources.create"] == 1


def test_the_same_answer_to_a_request_without_a_name_is_a_stockout(tmp_path):
    """A zone whose TPUs are all reserved says so to spot requests as well (docs/facts.md 1.6)."""
    lab = EngineLab(tmp_path)
    lab.cloud.fail_next("tpu.nodes.create", ["zone serves only reservations"])
    controller = lab.up(queued(tpu__request="node"))
    (refused,) = [e.message for e in controller.events if e.kind == "refused"]
    assert "(capacity)" in refused
    assert "TPU-302" in refused
    assert list(lab.nodes()) == ["demo-tpu-g2"]
