"""Lists over all zones at once, and a zone that the TPU API does not reach."""

import pytest

from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.errors import LocalCloudError
from tests.emulator.emulator_lab import NODES, PROJECT, ZONE, a_lab, node_body

OTHER, HIDDEN = "us-west4-a", "us-central1-a"
ALL = NODES.replace(ZONE, "-")


def path(zone):
    """Return how a list names a zone."""
    return f"projects/{PROJECT}/locations/{zone}"


@pytest.fixture
def lab():
    """A node in each of two zones."""
    lab = a_lab(hidden_zones=frozenset({HIDDEN}))
    for zone in (ZONE, OTHER):
        lab.ok("POST", f"{NODES.replace(ZONE, zone)}?nodeId=in-{zone}", node_body())
    lab.after(5)
    return lab


def observed(answer):
    """Return zone and name of each node of a list."""
    return [node["name"].split("/")[3::2] for node in answer["nodes"]]


@pytest.mark.parametrize("size", ["", "?pageSize=1"])
def test_one_list_shows_the_nodes_of_all_zones(lab, size):
    """By pages like any other; a zone that the project may not see is none of them."""
    answer = lab.ok("GET", ALL + size)
    if size:
        more = lab.ok("GET", f"{ALL}{size}&pageToken={answer['nextPageToken']}")
        answer = {"nodes": answer["nodes"] + more["nodes"]}
    assert observed(answer) == [[ZONE, f"in-{ZONE}"], [OTHER, f"in-{OTHER}"]]
    assert "unreachable" not in answer


def test_a_zone_out_of_reach_is_named_and_what_is_in_it_not_shown(lab):
    """Its own list says so too, its other calls fail, and all is as before when it is back."""
    lab.cloud.set_zone_state(OTHER, "unreachable")
    answer = lab.ok("GET", ALL)
    assert (observed(answer), answer["unreachable"]) == ([[ZONE, f"in-{ZONE}"]], [path(OTHER)])
    assert lab.ok("GET", NODES.replace(ZONE, OTHER)) == {"nodes": [], "unreachable": [path(OTHER)]}
    node = f"{NODES.replace(ZONE, OTHER)}/in-{OTHER}"
    assert (lab.call("GET", node)[0], lab.call("DELETE", node)[0]) == (503, 503)
    again = a_lab()
    again.cloud.restore(lab.cloud.snapshot())
    assert again.ok("GET", ALL)["unreachable"] == [path(OTHER)]
    lab.cloud.set_zone_state(OTHER, "reachable")
    assert len(observed(lab.ok("GET", ALL))) == 2


def test_a_fault_can_leave_all_zones_out_of_one_list(lab):
    """Nothing is shown then, and each zone is named."""
    lab.cloud.fail_next("tpu.nodes.list", ["unreachable"])
    answer = lab.ok("GET", ALL)
    assert (answer["nodes"], path(ZONE) in answer["unreachable"]) == ([], True)
    assert path(HIDDEN) not in answer["unreachable"]


def test_queued_resources_are_listed_so_too(lab):
    """Over all zones, without those of a zone out of reach."""
    queue = ALL.replace("nodes", "queuedResources")
    assert lab.ok("GET", queue) == {"queuedResources": []}
    lab.cloud.set_zone_state(OTHER, "unreachable")
    assert lab.ok("GET", queue) == {"queuedResources": [], "unreachable": [path(OTHER)]}


def test_only_lists_go_over_all_zones(lab):
    """A node is made, read and deleted in its zone."""
    assert lab.call("POST", f"{ALL}?nodeId=n1", node_body())[0] == 400
    assert lab.call("GET", f"{ALL}/in-{ZONE}")[0] == 400


@pytest.mark.parametrize(("zone", "state"), [("nowhere", "unreachable"), (ZONE, "asleep")])
def test_what_no_zone_can_be_is_refused(lab, zone, state):
    """The error says what is known."""
    cloud: LocalCloud = lab.cloud
    with pytest.raises(LocalCloudError):
        cloud.set_zone_state(zone, state)
