"""What queued resources refuse: bodies, names, quota, deletions, request ids; and their deadlines and pages."""

from datetime import datetime, timezone

import pytest

from tests.emulator.emulator_lab import NODES, PROJECT, UUID, ZONE, a_lab, node_body
from tests.emulator.queued_kit import (
    PARENT,
    QUEUED,
    UNTIL_ACTIVE,
    an_active,
    node_states,
    queued_body,
    slices,
    spec,
    state,
    submit,
)

OTHER = "22222222-2222-4333-8444-555555555555"
SPOT_QUOTA = ("TPUV5sPreemptibleLitepodServingPerProjectPerZoneForTPUAPI", ZONE)
STOCKOUT = {"stockouts": frozenset({ZONE})}


def at(lab, seconds):
    """Return the time *seconds* from now as the API takes it."""
    moment = datetime.fromtimestamp(lab.clock.now() + seconds, timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ({}, "needs a node_spec"),
        ({"tpu": {"nodeSpec": []}}, "needs a node_spec"),
        ({"tpu": {"nodeSpec": "x"}}, "field 'tpu.nodeSpec'"),
        (queued_body(guaranteed={}, spot={}), "Only one of spot and guaranteed"),
        (queued_body({"parent": PARENT, "node": node_body()}), "Exactly one of node_id and"),
        (queued_body({**slices(2), "nodeId": "n1"}), "Exactly one of node_id and"),
        (queued_body(slices(1)), "greater than 1"),
        (queued_body({**spec(), "parent": "projects/x/locations/y"}), "parent of a node must be"),
        (queued_body(spec(acceleratorType="v4-8")), "zonal accelerator configurations"),
        (queued_body(spec(runtimeVersion="nope")), "runtime version"),
        (queued_body(spec("Not_A_Name")), "node id"),
        (queued_body(queueingPolicy={"validUntilDuration": "soon"}), "not a duration"),
        (queued_body(queueingPolicy={"validUntilTime": "tomorrow"}), "not a time"),
        (
            queued_body(queueingPolicy={"validUntilDuration": "1s", "validAfterDuration": "1s"}),
            "Only one start timing",
        ),
    ],
)
def test_a_body_that_makes_no_sense_is_refused(body, part):
    """400 with the reason, and nothing is in the queue."""
    lab = a_lab()
    status, answer = lab.call("POST", f"{QUEUED}?queuedResourceId=q1", body)
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert part in answer["error"]["message"]
    lab.after(1)
    assert lab.ok("GET", QUEUED)["queuedResources"] == []


def test_names_that_are_bad_taken_or_elsewhere_are_refused():
    """400 for a bad id or zone, 409 for a name in use, also while nobody can read it; 404 for an unknown one."""
    lab = a_lab()
    assert lab.call("POST", QUEUED, queued_body())[0] == 400
    assert lab.call("POST", f"{QUEUED}?queuedResourceId=a%20b", queued_body())[0] == 400
    assert lab.call("POST", QUEUED.replace(ZONE, "nowhere-1-a"), queued_body())[0] == 400
    submit(lab)
    status, answer = lab.call("POST", f"{QUEUED}?queuedResourceId=q1", queued_body())
    assert (status, answer["error"]["status"]) == (409, "ALREADY_EXISTS")
    assert answer["error"]["details"][0]["resourceName"] == f"{PARENT}/queuedResources/q1"
    lab.ok("POST", f"{NODES}?nodeId=n2", node_body())
    assert lab.call("POST", f"{QUEUED}?queuedResourceId=q2", queued_body(spec("n2")))[0] == 409
    assert lab.call("GET", f"{QUEUED}/q3")[0] == 404
    assert lab.call("GET", QUEUED.replace(PROJECT, "another") + "/q1")[0] == 403


def test_a_new_queued_resource_cannot_be_read_for_a_moment():
    """404 from get and delete, and no line in the list; then it is there."""
    lab = a_lab()
    submit(lab)
    assert lab.call("GET", f"{QUEUED}/q1")[0] == 404
    assert lab.call("DELETE", f"{QUEUED}/q1?force=true")[0] == 404
    assert lab.ok("GET", QUEUED)["queuedResources"] == []
    lab.after(0.2)
    assert lab.ok("GET", QUEUED)["queuedResources"][0]["state"] == {"state": "CREATING", "creatingData": {}}


def test_quota_is_held_from_the_creation_to_the_deletion():
    """Refused at the creation, not queued; waiting, dead and failed ones count, and their nodes only once."""
    lab = a_lab(quotas={SPOT_QUOTA: 16})
    an_active(lab)
    submit(lab, spec("n2"), name="q2", queueingPolicy={"validAfterDuration": "3600s"})
    lab.cloud.preempt("n1", notice=False)
    lab.after(1)
    assert (state(lab), state(lab, "q2")) == (("SUSPENDED", "SERVICE"), "WAITING_FOR_RESOURCES")
    for method, path, body in (
        ("POST", f"{QUEUED}?queuedResourceId=q3", queued_body(spec("n3"))),
        ("POST", f"{NODES}?nodeId=n3", node_body(schedulingConfig={"spot": True})),
    ):
        status, answer = lab.call(method, path, body)
        assert (status, answer["error"]["status"]) == (429, "RESOURCE_EXHAUSTED")
        assert "Limit: 16" in answer["error"]["message"]
    lab.ok("POST", f"{QUEUED}?queuedResourceId=q4", queued_body(spec("n4"), tier=None))
    lab.ok("DELETE", f"{QUEUED}/q1")
    lab.after(1)
    submit(lab, spec("n3"), name="q3")


def test_all_slices_of_a_request_count_together():
    """Two slices of 8 do not fit into 12."""
    lab = a_lab(quotas={SPOT_QUOTA: 12})
    assert lab.call("POST", f"{QUEUED}?queuedResourceId=q1", queued_body(slices(2)))[0] == 429
    submit(lab, spec("n1"))


@pytest.mark.parametrize("moment", ["CREATING", "WAITING_FOR_RESOURCES", "PROVISIONING"])
def test_a_queued_resource_without_nodes_is_deleted_without_force(moment):
    """The place in the queue is lost, and no node comes afterwards."""
    lab = a_lab()
    started = submit(lab)
    lab.after({"CREATING": 0.3, "WAITING_FOR_RESOURCES": 0.8, "PROVISIONING": 1.6}[moment])
    assert state(lab) == moment
    deletion = lab.ok("DELETE", f"{QUEUED}/q1")
    assert state(lab) == "DELETING"
    lab.after(10)
    assert lab.operation(deletion)["response"] == {"@type": "type.googleapis.com/google.protobuf.Empty"}
    assert lab.operation(started)["done"] is True
    assert (state(lab), node_states(lab), lab.machines.calls) == (None, {}, [])


def test_a_queued_resource_with_nodes_is_deleted_by_force_only():
    """400 without force, while it has nodes; with force the nodes go first, and their bill ends at once."""
    lab = a_lab()
    an_active(lab)
    status, answer = lab.call("DELETE", f"{QUEUED}/q1")
    assert (status, answer["error"]["status"]) == (400, "INVALID_ARGUMENT")
    assert "ACTIVE" in answer["error"]["message"]
    assert node_states(lab) == {"n1": "READY"}
    lab.ok("DELETE", f"{QUEUED}/q1?force=true")
    assert (state(lab), node_states(lab)) == ("DELETING", {"n1": "DELETING"})
    assert lab.call("DELETE", f"{QUEUED}/q1?force=true")[1]["error"]["status"] == "ABORTED"
    lab.after(0.5)
    assert (state(lab), node_states(lab), lab.cloud.machines()) == (None, {}, [])
    assert [line.seconds for line in lab.cloud.bill()] == [0.0]


def test_a_queued_resource_that_is_being_provisioned_needs_force_too():
    """Its nodes exist; the creation is cancelled."""
    lab = a_lab()
    submit(lab)
    lab.after(2.0)
    assert lab.call("DELETE", f"{QUEUED}/q1")[0] == 400
    lab.ok("DELETE", f"{QUEUED}/q1?force=true")
    lab.after(5)
    assert (state(lab), node_states(lab), lab.machines.calls) == (None, {}, [])


def test_a_dead_one_is_deleted_without_force_and_its_name_is_free():
    """After SUSPENDED the same names can be asked for again."""
    lab = a_lab()
    an_active(lab)
    lab.cloud.preempt("n1", notice=False)
    assert lab.call("DELETE", f"{QUEUED}/q1")[0] == 400
    lab.after(0.5)
    assert lab.call("POST", f"{QUEUED}?queuedResourceId=q1", queued_body())[0] == 409
    assert lab.call("POST", f"{QUEUED}/q1:reset")[0] == 400
    lab.ok("DELETE", f"{QUEUED}/q1")
    lab.after(0.3)
    an_active(lab)


@pytest.mark.parametrize(
    "policy",
    [
        lambda lab: {"validUntilDuration": "60s"},
        lambda lab: {"validUntilTime": at(lab, 60)},
        lambda lab: {"validInterval": {"startTime": at(lab, -60), "endTime": at(lab, 60)}},
        lambda lab: {"validInterval": {"endTime": at(lab, 60)}},
    ],
)
def test_a_queued_resource_that_got_nothing_in_time_fails_and_stays(policy):
    """FAILED at its deadline, with an error, until it is deleted."""
    lab = a_lab(**STOCKOUT)
    submit(lab, queueingPolicy=policy(lab))
    lab.after(59.9)
    assert state(lab) == "WAITING_FOR_RESOURCES"
    lab.after(0.2)
    assert lab.ok("GET", f"{QUEUED}/q1")["state"]["failedData"]["error"]["code"] == 4
    lab.after(10**6)
    assert state(lab) == "FAILED"
    lab.ok("DELETE", f"{QUEUED}/q1")


@pytest.mark.parametrize(
    "policy",
    [
        lambda lab: {"validAfterDuration": "60s"},
        lambda lab: {"validAfterTime": at(lab, 60)},
        lambda lab: {"validInterval": {"startTime": at(lab, 60), "endTime": at(lab, 120)}},
    ],
)
def test_nothing_is_given_before_its_time(policy):
    """It waits until the start, then it is chosen."""
    lab = a_lab()
    submit(lab, queueingPolicy=policy(lab))
    lab.after(59.9)
    assert state(lab) == "WAITING_FOR_RESOURCES"
    lab.after(0.2)
    assert state(lab) == "PROVISIONING"
    lab.after(UNTIL_ACTIVE)
    assert state(lab) == "ACTIVE"


def test_a_deadline_does_not_end_what_is_active():
    """The deadline is one for beginning."""
    lab = a_lab()
    an_active(lab, queueingPolicy={"validUntilDuration": "5s"})
    lab.after(3600)
    assert state(lab) == "ACTIVE"


def test_the_same_request_id_is_the_same_call():
    """A repeat gives the first operation, also after the deletion; another body is refused, as is no UUID."""
    lab = a_lab()
    first = submit(lab, request=UUID)
    assert submit(lab, request=UUID)["name"] == first["name"]
    again = f"{QUEUED}?queuedResourceId=q1&requestId={UUID}"
    assert lab.call("POST", again, queued_body(spec("n2")))[0] == 400
    assert lab.call("POST", f"{QUEUED}?queuedResourceId=q2&requestId=x", queued_body())[0] == 400
    lab.after(UNTIL_ACTIVE)
    delete = f"{QUEUED}/q1?force=true&requestId={OTHER}"
    deletion = lab.ok("DELETE", delete)
    assert lab.call("DELETE", delete.replace("force=true", "force=false"))[0] == 400
    lab.after(1)
    assert lab.ok("DELETE", delete)["name"] == deletion["name"]
    assert lab.ok("POST", again, queued_body())["name"] == first["name"]
    assert state(lab) is None


def test_lists_have_pages_and_places_that_did_not_answer():
    """Three on pages of two; of a partial answer only the place is shown."""
    lab = a_lab()
    for index in range(3):
        submit(lab, spec(f"n{index}"), name=f"q{index}")
    lab.after(1)
    first = lab.ok("GET", f"{QUEUED}?pageSize=2")
    rest = lab.ok("GET", f"{QUEUED}?pageSize=2&pageToken={first['nextPageToken']}")
    names = [q["name"].rpartition("/")[2] for q in first["queuedResources"] + rest["queuedResources"]]
    assert (names, "nextPageToken" in rest) == (["q0", "q1", "q2"], False)
    lab.cloud.fail_next("tpu.queuedResources.list", ["unreachable"])
    assert lab.ok("GET", QUEUED) == {"queuedResources": [], "unreachable": [PARENT]}
    assert lab.ok("GET", QUEUED.replace(ZONE, "us-central1-a"))["queuedResources"] == []
