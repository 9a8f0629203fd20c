"""Reservations of the local cloud: taken from by name, full, too small, not there, and listed with their use."""

import pytest

from orchestrator.emulator.start_options import Options
from orchestrator.errors import LocalCloudError
from tests.emulator.emulator_lab import NODES, ZONE, a_lab, node_body
from tests.emulator.queued_kit import PARENT, QUEUED, UNTIL_ACTIVE, spec, state, submit

SMALL = {"reservations": {(ZONE, "mine"): "v5litepod-8"}}
MINE = {"reservationName": f"{PARENT}/reservations/mine", "tier": None}
LIST = f"/v2alpha1/{PARENT}/reservations"


def failure(lab, name="q1"):
    """Return code and text of a queued resource that has failed."""
    error = lab.ok("GET", f"{QUEUED}/{name}")["state"]["failedData"]["error"]
    return error["code"], error["message"].partition(" [")[0]


def test_a_reserved_tpu_comes_where_the_zone_is_empty():
    """Its node says that it is reserved, and the reservation what of it is in use."""
    lab = a_lab(stockouts=frozenset({ZONE}), **SMALL)
    submit(lab, **MINE)
    lab.after(UNTIL_ACTIVE)
    assert state(lab) == "ACTIVE"
    assert lab.ok("GET", f"{NODES}/n1")["schedulingConfig"]["reserved"] is True
    (one,) = lab.ok("GET", LIST)["reservations"]
    assert (one["name"], one["standard"]["size"]) == (f"{PARENT}/reservations/mine", 8)
    assert one["standard"]["usage"] == {"total": "8"}


def test_what_is_in_use_is_waited_for():
    """The second request goes on when the first one is deleted."""
    lab = a_lab(**SMALL)
    submit(lab, **MINE)
    lab.after(UNTIL_ACTIVE)
    submit(lab, spec("n2"), name="q2", **MINE)
    lab.after(600)
    assert state(lab, "q2") == "WAITING_FOR_RESOURCES"
    lab.ok("DELETE", f"{QUEUED}/q1?force=true")
    lab.after(10)
    assert state(lab, "q2") == "ACTIVE"


@pytest.mark.parametrize("name", ["other", "-"])
def test_a_reservation_that_is_not_there_fails_the_request(name):
    """Also when any of the project would do and there is none."""
    lab = a_lab(reservations={("europe-west4-a", "mine"): "v5litepod-8"})
    submit(lab, reservationName=f"{PARENT}/reservations/{name}", tier=None)
    lab.after(1)
    assert failure(lab) == (5, "Reservation not found")


def test_a_tpu_that_is_larger_than_the_reservation_fails():
    """Waiting would not help."""
    lab = a_lab(**SMALL)
    submit(lab, spec("n1", acceleratorType="v5litepod-16"), **MINE)
    lab.after(1)
    assert failure(lab)[0] == 9
    assert failure(lab)[1].startswith("Insufficient reserved capacity.")


@pytest.mark.parametrize(("reservations", "code"), [({}, 5), (SMALL["reservations"], 9)])
def test_a_node_with_the_flag_reserved_takes_what_there_is(reservations, code):
    """The second one finds none, or none left; the operation says so."""
    lab = a_lab(reservations=reservations)
    body = node_body(schedulingConfig={"reserved": True})
    started = [lab.ok("POST", f"{NODES}?nodeId={name}", body) for name in ("a", "b")]
    lab.after(10)
    ended = [lab.ok("GET", f"/v2/{one['name']}").get("error", {}).get("code") for one in started]
    assert ended == [None if reservations else code, code]


def test_a_reservation_of_a_type_that_the_zone_has_not_is_no_setting():
    """The message says how to write one."""
    assert Options(reservations=("mine@us-west4-a=v5litepod-16",)).cloud_settings().reservations == {
        ("us-west4-a", "mine"): "v5litepod-16"
    }
    for entry in ("mine", "mine@us-west4-a", "mine@us-west4-a=v4-8", "@us-west4-a=v5litepod-16"):
        with pytest.raises(LocalCloudError) as caught:
            Options(reservations=(entry,)).cloud_settings()
        assert "NAME@ZONE=TYPE" in caught.value.hint
