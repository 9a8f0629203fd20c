"""Flex-start TPUs of the local cloud: asked for by v2alpha1 alone, given for a time, ended by the service."""

import pytest

from tests.emulator.emulator_lab import PROJECT, a_lab, node_body
from tests.emulator.queued_kit import UNTIL_ACTIVE

ZONE = "us-west4-a"
PLACE = f"projects/{PROJECT}/locations/{ZONE}"
ALPHA, V2 = f"/v2alpha1/{PLACE}/queuedResources", f"/v2/{PLACE}/queuedResources"
SPOT_QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"


def request(seconds=3600, zone=ZONE, **fields):
    """Return the body of a flex-start queued resource for one node."""
    parent = f"projects/{PROJECT}/locations/{zone}"
    run = {"runDuration": {"maxRunDuration": f"{seconds}s"}} if seconds else {}
    spec = {"parent": parent, "nodeId": "n1", "node": node_body()}
    return {"tpu": {"nodeSpec": [spec]}, "provisioningModel": "FLEX_START", **run, **fields}


def test_a_flex_start_tpu_runs_for_its_time_and_is_suspended_without_a_node():
    """The service ends it without a notice, and the queued resource holds quota until it is deleted."""
    lab = a_lab(quotas={(SPOT_QUOTA, ZONE): 8})
    lab.ok("POST", f"{ALPHA}?queuedResourceId=q1", request(3600))
    lab.after(UNTIL_ACTIVE)
    assert lab.ok("GET", f"{V2}/q1")["state"]["state"] == "ACTIVE"
    lab.after(3590)
    assert lab.ok("GET", f"{V2}/q1")["state"]["state"] == "ACTIVE"
    lab.after(20)
    assert lab.ok("GET", f"{V2}/q1")["state"]["state"] == "SUSPENDED"
    assert lab.ok("GET", f"/v2/{PLACE}/nodes").get("nodes", []) == []
    assert lab.cloud.machines() == []
    assert lab.call("POST", f"{ALPHA}?queuedResourceId=q2", request())[0] == 429


def test_only_v2alpha1_takes_and_shows_its_fields():
    """To v2 they are unknown names, as the discovery documents say; it sees the rest."""
    lab = a_lab()
    status, answer = lab.call("POST", f"{V2}?queuedResourceId=q1", request())
    assert status == 400
    assert 'Unknown name "provisioningModel"' in answer["error"]["message"]
    lab.ok("POST", f"{ALPHA}?queuedResourceId=q1", request())
    lab.after(UNTIL_ACTIVE)
    shown = lab.ok("GET", f"{ALPHA}/q1")
    assert (shown["provisioningModel"], shown["runDuration"]) == ("FLEX_START", {"maxRunDuration": "3600s"})
    assert not {"provisioningModel", "runDuration"} & set(lab.ok("GET", f"{V2}/q1"))
    (listed,) = lab.ok("GET", V2)["queuedResources"]
    assert "runDuration" not in listed


def test_most_zones_do_not_offer_it_and_say_so_inside_the_operation():
    """The call is accepted; no list of the API shows it before."""
    lab, zone = a_lab(), "europe-west4-b"
    at = f"/v2alpha1/projects/{PROJECT}/locations/{zone}"
    started = lab.ok("POST", f"{at}/queuedResources?queuedResourceId=q1", request(zone=zone))
    lab.after(1)
    error = lab.ok("GET", f"/v2alpha1/{started['name']}")["error"]
    assert error["code"] == 3
    assert 'not supported for accelerator type "v5litepod-8" in location "europe-west4-b"' in error["message"]
    assert lab.ok("GET", f"{at}/queuedResources/q1")["state"]["state"] == "FAILED"


@pytest.mark.parametrize("seconds", [0, 604800])
def test_a_flex_start_tpu_may_run_for_a_week_at_most(seconds):
    """Without a duration it is a week as well."""
    lab = a_lab()
    lab.ok("POST", f"{ALPHA}?queuedResourceId=q1", request(seconds))
    lab.after(604800 - 60)
    assert lab.ok("GET", f"{V2}/q1")["state"]["state"] == "ACTIVE"
    lab.after(120)
    assert lab.ok("GET", f"{V2}/q1")["state"]["state"] == "SUSPENDED"


@pytest.mark.parametrize(
    "fields",
    [
        {"runDuration": {"maxRunDuration": "604801s"}},
        {"runDuration": {"maxRunDuration": "0s"}},
        {"provisioningModel": "FLEX"},
        {"spot": {}},
    ],
)
def test_what_makes_no_sense_is_refused(fields):
    """With 400, and nothing is in the queue."""
    lab = a_lab()
    assert lab.call("POST", f"{ALPHA}?queuedResourceId=q1", {**request(), **fields})[0] == 400
    assert lab.ok("GET", V2).get("queuedResources", []) == []
