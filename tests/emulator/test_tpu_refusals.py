"""What the TPU API refuses, on both planes, with the texts of the error table."""

import re

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from tests.emulator.emulator_lab import NODES, SPOT_NODE, ZONE, a_lab, node_body

QUOTA = "TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI"


def test_a_zone_without_capacity_fails_inside_the_operation():
    """Stockout is code 8 on the operation, after a delay; the node is not left behind."""
    lab = a_lab(stockouts=frozenset({ZONE}))
    started = lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    assert started["done"] is False
    lab.after(0.5)
    error = lab.operation(started)["error"]
    assert error["code"] == 8
    assert error["message"].startswith(f'There is no more capacity in the zone "{ZONE}"; you can try')
    assert re.search(r"\[EID: 0x[0-9a-f]{16}\]$", error["message"])
    assert lab.call("GET", f"{NODES}/n1")[0] == 404


def test_quota_is_refused_on_the_call_and_counts_preempted_nodes():
    """429 with QuotaFailure; a node that was preempted holds its quota until it is deleted."""
    lab = a_lab(quotas={(QUOTA, ZONE): 8})
    lab.node(**SPOT_NODE)
    lab.cloud.preempt("n1", notice=False)
    status, answer = lab.call("POST", f"{NODES}?nodeId=n2", node_body(**SPOT_NODE))
    error = answer["error"]
    assert (status, error["status"]) == (429, "RESOURCE_EXHAUSTED")
    assert error["message"] == f"Quota limit '{QUOTA}' has been exceeded. Limit: 8 in zone {ZONE}."
    violation = error["details"][0]["violations"][0]
    assert violation["subject"] == "project:123456789012"
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(1)
    lab.ok("POST", f"{NODES}?nodeId=n2", node_body(**SPOT_NODE))


def test_on_demand_and_spot_have_separate_quotas_also_by_region():
    """The regional id is checked too; an on-demand node does not count against the spot quota."""
    regional = QUOTA.replace("Zone", "Region")
    lab = a_lab(quotas={(regional, "europe-west4"): 8})
    lab.node()
    lab.node("n2", **SPOT_NODE)
    status, answer = lab.call("POST", f"{NODES}?nodeId=n3", node_body(**SPOT_NODE))
    assert status == 429
    assert answer["error"]["message"].endswith("Limit: 8 in region europe-west4.")


def test_a_taken_name_is_a_conflict_with_the_resource():
    """409 ALREADY_EXISTS carries ResourceInfo."""
    lab = a_lab()
    lab.node()
    status, answer = lab.call("POST", f"{NODES}?nodeId=n1", node_body())
    path = NODES.removeprefix("/v2/") + "/n1"
    assert status == 409
    assert answer["error"]["status"] == "ALREADY_EXISTS"
    assert answer["error"]["message"] == f"Resource '{path}' already exists"
    assert answer["error"]["details"][0]["resourceName"] == path


@pytest.mark.parametrize(
    ("name", "fields", "text"),
    [
        ("n1", {"acceleratorType": "v4-8"}, "could not be found in the zonal accelerator configurations"),
        ("n1", {"runtimeVersion": "no-such"}, "runtime version"),
        ("Bad_Name", {}, "node id"),
        ("n1", {"acceleratorConfig": {"type": 9, "topology": "2x4"}}, "Only one of"),
        ("n1", {"networkConfig": {"network": "a"}, "networkConfigs": [{"network": "b"}]}, "Only one of"),
        ("n1", {"description": "x" * 513}, "512"),
    ],
)
def test_a_wrong_body_is_refused_on_the_call(name, fields, text):
    """400 INVALID_ARGUMENT names the problem, and no node is made."""
    lab = a_lab()
    status, answer = lab.call("POST", f"{NODES}?nodeId={name}", node_body(**fields))
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert text in answer["error"]["message"]
    assert lab.ok("GET", NODES)["nodes"] == []


def test_unknown_and_hidden_zones_answer_differently():
    """400 for a zone without TPUs, 403 LOCATION_POLICY_VIOLATED for one the project may not see."""
    lab = a_lab(hidden_zones=frozenset({"us-central2-b"}))
    status, answer = lab.call("GET", NODES.replace(ZONE, "mars-east1-a"))
    assert status == 400
    assert 'The requested zone "mars-east1-a" is not supported.' in answer["error"]["message"]
    status, answer = lab.call("GET", NODES.replace(ZONE, "us-central2-b"))
    assert status == 403
    assert answer["error"]["details"][0]["reason"] == "LOCATION_POLICY_VIOLATED"


def test_what_the_catalogue_offers_is_served():
    """A type and zone that a deployment file may name are not refused here; such a zone is us-south1-ai1b."""
    catalog, lab = load_catalog(), a_lab()
    offered = {(zone, kind) for kind in catalog.served() for zone in catalog.zones_of(kind)}
    served = set()
    for zone in {zone for zone, _ in offered}:
        types = lab.ok("GET", NODES.replace(ZONE, zone).replace("nodes", "acceleratorTypes?pageSize=500"))
        served |= {(zone, found["type"]) for found in types["acceleratorTypes"]}
    assert ("us-south1-ai1b", "v6e-8") in offered
    assert offered <= served


def test_a_missing_node_is_not_found():
    """404 NOT_FOUND names the node."""
    status, answer = a_lab().call("GET", f"{NODES}/nope")
    assert (status, answer["error"]["status"]) == (404, "NOT_FOUND")
    assert answer["error"]["message"].endswith("nodes/nope' was not found")


def test_a_disabled_api_says_how_to_enable_it():
    """403 SERVICE_DISABLED with the activation address."""
    lab = a_lab(disabled_apis=frozenset({"tpu.googleapis.com"}))
    status, answer = lab.call("GET", NODES)
    info, localized, helping = answer["error"]["details"]
    assert status == 403
    assert info["reason"] == "SERVICE_DISABLED"
    assert localized["message"] == answer["error"]["message"]
    assert helping["links"][0]["url"].endswith("overview?project=local-project")


def test_a_denied_permission_is_named():
    """403 names the permission that is missing, whatever the verb."""
    lab = a_lab(denied_permissions=frozenset({"tpu.nodes.delete"}))
    lab.node()
    status, answer = lab.call("DELETE", f"{NODES}/n1")
    assert status == 403
    assert "Permission 'tpu.nodes.delete' denied on resource" in answer["error"]["message"]
    assert answer["error"]["details"][0]["metadata"]["permission"] == "tpu.nodes.delete"
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"


def test_another_project_is_refused():
    """A project that is not the local one answers 403 and names it."""
    status, answer = a_lab().call("GET", NODES.replace("local-project", "other"))
    assert status == 403
    assert "projects/other" in answer["error"]["message"]


@pytest.mark.parametrize("verb", ["start", "stop", "update"])
def test_a_preempted_node_refuses_all_but_delete(verb):
    """400 with the text that was observed for update."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.cloud.preempt("n1", notice=False)
    method, target = ("PATCH", "?updateMask=labels") if verb == "update" else ("POST", f":{verb}")
    status, answer = lab.call(method, f"{NODES}/n1{target}", {})
    assert status == 400
    assert answer["error"]["message"].startswith("Cloud TPU received a bad request.")


def test_update_of_a_preempted_node_has_the_known_text():
    """The words are those that operators report."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.cloud.preempt("n1", notice=False)
    _, answer = lab.call("PATCH", f"{NODES}/n1?updateMask=labels", {})
    assert "update is not supported while in state PREEMPTED [EID: 0x" in answer["error"]["message"]


def test_slices_and_spot_nodes_cannot_be_stopped():
    """What could not be started again is not stopped."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.node("n2", acceleratorType="v5litepod-16")
    assert lab.call("POST", f"{NODES}/n1:stop")[0] == 400
    assert lab.call("POST", f"{NODES}/n2:stop")[0] == 400
    assert lab.ok("GET", f"{NODES}/n2")["state"] == "READY"


def test_a_second_verb_meanwhile_is_aborted():
    """409 ABORTED while another operation changes the node."""
    lab = a_lab()
    lab.node()
    lab.ok("POST", f"{NODES}/n1:stop")
    status, answer = lab.call("POST", f"{NODES}/n1:start")
    assert (status, answer["error"]["status"]) == (409, "ABORTED")
    assert answer["error"]["message"] == "unable to queue the operation"


@pytest.mark.parametrize("mask", ["", "acceleratorType", "networkConfig", "networkConfig.network"])
def test_an_update_mask_must_name_what_can_change(mask):
    """400 for an empty mask and for fields that are fixed."""
    lab = a_lab()
    lab.node()
    assert lab.call("PATCH", f"{NODES}/n1?updateMask={mask}", {"acceleratorType": "v5litepod-4"})[0] == 400


def test_an_unknown_path_and_a_body_that_is_no_json_are_answered_in_json():
    """404 and 400 have the error form of Google's APIs."""
    lab = a_lab()
    status, answer = lab.call("GET", "/v9/anything")
    assert (status, answer["error"]["code"]) == (404, 404)
    status, answer = lab.call("POST", f"{NODES}?nodeId=n1", ["not", "an", "object"])
    assert (status, answer["error"]["code"]) == (400, 400)
