"""Data disks of the local cloud: made, attached to nodes, refused, and retained by the user."""

import pytest

from tests.emulator.emulator_lab import NODES, PROJECT, VMS, ZONE, a_lab, node_body
from tests.emulator.queued_kit import UNTIL_ACTIVE, spec, state, submit

DISKS = VMS.replace("instances", "disks")
PATH = f"projects/{PROJECT}/zones/{ZONE}/disks"


def a_lab_with(*names):
    """Return a cloud with disks."""
    lab = a_lab()
    for name in names:
        lab.ok("POST", DISKS, {"name": name, "sizeGb": "20", "type": f"zones/{ZONE}/diskTypes/pd-balanced"})
    lab.after(1)
    return lab


def body(name="d1", mode="READ_WRITE", **fields):
    """Return the body of a node with one disk."""
    return node_body(dataDisks=[{"sourceDisk": f"{PATH}/{name}", "mode": mode}], **fields)


def test_a_disk_is_made_listed_and_deleted():
    """Its size and type are those that were asked for; the name is taken then."""
    lab = a_lab_with("d1")
    (disk,) = lab.ok("GET", DISKS)["items"]
    assert (disk["name"], disk["sizeGb"], disk["type"].rpartition("/")[2]) == ("d1", "20", "pd-balanced")
    assert lab.call("POST", DISKS, {"name": "d1"})[0] == 409
    assert lab.call("POST", DISKS, {"name": "No"})[0] == 400
    lab.ok("DELETE", f"{DISKS}/d1")
    lab.after(1)
    assert lab.ok("GET", DISKS).get("items", []) == []


def test_a_node_has_its_disks_until_it_is_gone():
    """They are shown as its own, cannot be deleted meanwhile, and outlive it; a preemption does not free them."""
    lab = a_lab_with("d1")
    lab.ok("POST", f"{NODES}?nodeId=n1", body(schedulingConfig={"spot": True}))
    lab.after(2)
    assert lab.ok("GET", f"{NODES}/n1")["dataDisks"] == [{"sourceDisk": f"{PATH}/d1", "mode": "READ_WRITE"}]
    assert [user.rpartition("/")[2] for user in lab.ok("GET", f"{DISKS}/d1")["users"]] == ["n1"]
    assert lab.call("DELETE", f"{DISKS}/d1")[0] == 400
    lab.cloud.preempt("n1", notice=False)
    lab.after(5)
    assert lab.call("POST", f"{NODES}?nodeId=n2", body())[0] == 400
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(5)
    lab.ok("POST", f"{NODES}?nodeId=n2", body())


def test_several_read_and_one_writes():
    """Who reads keeps out who would write, and the other way round."""
    lab = a_lab_with("d1")
    for name in ("n1", "n2"):
        lab.ok("POST", f"{NODES}?nodeId={name}", body(mode="READ_ONLY"))
    status, answer = lab.call("POST", f"{NODES}?nodeId=n3", body())
    assert status == 400
    assert "already being used by" in answer["error"]["message"]


@pytest.mark.parametrize(
    ("fields", "part"),
    [
        (body("nope"), "was not found"),
        (node_body(dataDisks=[{"sourceDisk": f"projects/{PROJECT}/zones/us-west4-a/disks/d1"}]), "was not"),
        (node_body(dataDisks=[{"sourceDisk": "d1"}]), "not the path of a disk"),
        (body(acceleratorType="v5litepod-16"), "cannot be attached to several hosts"),
    ],
)
def test_what_cannot_be_attached_is_refused_on_the_call(fields, part):
    """No node is made."""
    lab = a_lab_with("d1")
    status, answer = lab.call("POST", f"{NODES}?nodeId=n1", fields)
    assert status == 400
    assert part in answer["error"]["message"]
    assert lab.ok("GET", NODES).get("nodes", []) == []


def test_a_queued_resource_attaches_disks_as_well():
    """They are those of its node."""
    lab = a_lab_with("d1")
    disk = {"sourceDisk": f"{PATH}/d1", "mode": "READ_ONLY"}
    submit(lab, spec(dataDisks=[disk]))
    lab.after(UNTIL_ACTIVE)
    assert state(lab) == "ACTIVE"
    assert lab.ok("GET", f"{NODES}/n1")["dataDisks"] == [disk]
