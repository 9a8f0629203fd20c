"""The lifetime of a queued resource: into the queue, nodes, their loss, and the end."""

import pytest

from tests.emulator.emulator_lab import NODES, a_lab, node_body
from tests.emulator.queued_kit import (
    NUMBERED,
    PARENT,
    QUEUED,
    UNTIL_ACTIVE,
    an_active,
    node_states,
    slices,
    spec,
    state,
    submit,
)

DAY = 24 * 3600


def verbs(lab):
    """Return what the machines were asked for."""
    return [call for call, _ in lab.machines.calls]


def test_a_queued_resource_waits_is_chosen_and_becomes_active_with_a_node():
    """404, CREATING, WAITING_FOR_RESOURCES, PROVISIONING first without and then with a node, ACTIVE."""
    lab = a_lab()
    submit(lab)
    observed = []
    for _ in range(35):
        observed.append((state(lab), node_states(lab).get("n1")))
        lab.after(0.1)
    assert list(dict.fromkeys(observed)) == [
        (None, None),
        ("CREATING", None),
        ("WAITING_FOR_RESOURCES", None),
        ("PROVISIONING", None),
        ("PROVISIONING", "CREATING"),
        ("ACTIVE", "READY"),
    ]
    assert verbs(lab) == ["boot"]


def test_the_operation_of_a_creation_ends_when_the_request_is_in_the_queue():
    """It does not wait for nodes; its answer is the queued resource as it was then."""
    lab = a_lab(stockouts=frozenset({"europe-west4-b"}))
    started = submit(lab)
    assert lab.operation(started)["done"] is False
    lab.after(0.5)
    ended = lab.operation(started)
    assert ended["metadata"]["target"] == f"{PARENT}/queuedResources/q1"
    assert ended["response"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2.QueuedResource"
    assert ended["response"]["state"] == {"state": "WAITING_FOR_RESOURCES"}


def test_what_a_queued_resource_shows_and_what_its_node_shows():
    """The wishes, the parent by project number, and on the node the tier and the name of its queued resource."""
    lab = a_lab()
    an_active(lab, spec(labels={"a": "1"}, metadata={"k": "v"}))
    shown = lab.ok("GET", f"{QUEUED}/q1")
    assert (shown["name"], shown["spot"]) == (f"{PARENT}/queuedResources/q1", {})
    assert shown["state"] == {"state": "ACTIVE", "activeData": {}}
    (only,) = shown["tpu"]["nodeSpec"]
    assert (only["parent"], only["nodeId"], only["node"]["labels"]) == (NUMBERED, "n1", {"a": "1"})
    node = lab.ok("GET", f"{NODES}/n1")
    assert node["queuedResource"] == only["node"]["queuedResource"] == f"{NUMBERED}/queuedResources/q1"
    assert node["schedulingConfig"]["spot"] is True
    (machine,) = lab.cloud.machines()
    assert machine.attributes["queued-resource-name"] == f"{NUMBERED}/queuedResources/q1"
    assert (machine.preemptible, machine.attributes["k"]) == (True, "v")


@pytest.mark.parametrize("tier", [{"guaranteed": {"minDuration": "3600s"}}, {"tier": None}])
def test_without_the_spot_tier_its_node_is_not_preemptible(tier):
    """Guaranteed, and no tier at all, give nodes that stay."""
    lab = a_lab()
    an_active(lab, **tier)
    assert not lab.ok("GET", f"{NODES}/n1")["schedulingConfig"].get("spot")
    assert not lab.cloud.machines()[0].preemptible


def test_several_slices_are_as_many_nodes_and_specs():
    """The names count from 0 behind the prefix, or behind the name of the queued resource."""
    lab = a_lab()
    an_active(lab, slices(2, "np"), slices(3))
    names = ["np-0", "np-1", "q1-0", "q1-1", "q1-2"]
    assert node_states(lab) == dict.fromkeys(names, "READY")
    assert [s["nodeId"] for s in lab.ok("GET", f"{QUEUED}/q1")["tpu"]["nodeSpec"]] == names
    assert all(lab.ok("GET", f"{NODES}/{name}")["multisliceNode"] for name in names)


def test_waiting_costs_nothing():
    """The bill begins when the nodes are READY."""
    lab = a_lab()
    submit(lab)
    lab.after(UNTIL_ACTIVE + 10)
    (line,) = lab.cloud.bill()
    assert line.seconds == pytest.approx(10)
    assert line.spot


def test_a_preempted_node_suspends_it_for_good():
    """Notice, PREEMPTED node under SUSPENDING, then SUSPENDED by the service without a node, for ever."""
    lab = a_lab()
    an_active(lab, spec(acceleratorType="v5litepod-16"))
    lab.cloud.preempt("n1")
    lab.after(1.9)
    assert state(lab) == "ACTIVE"
    lab.after(0.1)
    assert (state(lab), node_states(lab)) == (("SUSPENDING", "SERVICE"), {"n1": "PREEMPTED"})
    lab.after(0.5)
    assert (state(lab), node_states(lab)) == (("SUSPENDED", "SERVICE"), {})
    assert verbs(lab) == ["boot"] * 4 + ["notice"] * 4 + ["remove"] * 4
    lab.after(30 * DAY)
    assert state(lab) == ("SUSPENDED", "SERVICE")


def test_the_loss_of_one_slice_is_the_end_of_all():
    """The other slices are warned and deleted."""
    lab = a_lab()
    an_active(lab, slices(2))
    lab.cloud.preempt("q1-0", notice=False)
    assert node_states(lab) == {"q1-0": "PREEMPTED", "q1-1": "DELETING"}
    assert verbs(lab)[2:] == ["remove", "notice"]
    lab.after(0.5)
    assert (state(lab), node_states(lab), lab.cloud.machines()) == (("SUSPENDED", "SERVICE"), {}, [])


def test_a_node_that_its_user_deletes_suspends_it_too():
    """SUSPENDING and SUSPENDED say that the user began it; the node's operation ends well."""
    lab = a_lab()
    an_active(lab)
    started = lab.ok("DELETE", f"{NODES}/n1")
    assert state(lab) == ("SUSPENDING", "USER")
    lab.after(0.5)
    assert (state(lab), node_states(lab)) == (("SUSPENDED", "USER"), {})
    assert "response" in lab.operation(started)


def test_a_deletion_of_its_node_that_never_ends_keeps_it_suspending():
    """SUSPENDED means that the nodes are gone."""
    lab = a_lab()
    an_active(lab)
    lab.cloud.fail_next("tpu.nodes.delete", ["stuck"])
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(DAY)
    assert (state(lab), node_states(lab)) == (("SUSPENDING", "USER"), {"n1": "DELETING"})
    lab.ok("DELETE", f"{QUEUED}/q1?force=true")
    lab.after(0.5)
    assert (state(lab), node_states(lab), lab.cloud.machines()) == (None, {}, [])


def test_an_old_deletion_does_not_reach_the_next_node_of_the_same_name():
    """The user's slow deletion ends with the forced one; a new node under the name is not its business."""
    lab = a_lab()
    an_active(lab)
    lab.cloud.fail_next("tpu.nodes.delete", ["latency:10"])
    slow = lab.ok("DELETE", f"{NODES}/n1")
    lab.ok("DELETE", f"{QUEUED}/q1?force=true")
    lab.after(0.5)
    assert "response" in lab.operation(slow)
    an_active(lab)
    lab.after(6.6)
    lab.ok("POST", f"{QUEUED}/q1:reset")
    lab.after(0.2)
    assert node_states(lab) == {"n1": "RESTARTING"}


def test_a_node_that_vanishes_or_ends_suspends_it():
    """Also without an operation, and at the end of the 24 hours of a preemptible node."""
    lab = a_lab()
    an_active(lab)
    lab.cloud.set_node_state("n1", "vanish")
    lab.after(0.5)
    assert state(lab) == ("SUSPENDED", "SERVICE")
    an_active(lab, spec("n2", schedulingConfig={"preemptible": True}), name="q2", tier=None)
    lab.after(DAY)
    assert state(lab, "q2") == ("SUSPENDING", "SERVICE")


def test_a_node_lost_while_it_is_made_puts_it_back_into_the_queue():
    """PROVISIONING falls back to WAITING_FOR_RESOURCES, and is chosen again."""
    lab = a_lab()
    submit(lab)
    lab.after(2.0)
    assert node_states(lab) == {"n1": "CREATING"}
    lab.cloud.preempt("n1")
    assert (state(lab), node_states(lab)) == ("WAITING_FOR_RESOURCES", {})
    lab.after(2.8)
    assert (state(lab), node_states(lab)) == ("ACTIVE", {"n1": "READY"})
    assert verbs(lab) == ["boot"]


def test_a_name_that_is_taken_meanwhile_fails_it():
    """A plain node has come first: FAILED with code 6, and that node is not touched."""
    lab = a_lab()
    submit(lab)
    lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    lab.after(UNTIL_ACTIVE)
    assert lab.ok("GET", f"{QUEUED}/q1")["state"]["failedData"]["error"]["code"] == 6
    lab.ok("DELETE", f"{QUEUED}/q1?force=true")
    lab.after(1)
    assert node_states(lab) == {"n1": "READY"}


def test_a_reset_boots_the_machines_again_with_their_disks():
    """The node is RESTARTING meanwhile, the queued resource ACTIVE, and the bill goes on."""
    lab = a_lab()
    an_active(lab)
    started = lab.ok("POST", f"{QUEUED}/q1:reset")
    assert (state(lab), node_states(lab)) == ("ACTIVE", {"n1": "RESTARTING"})
    lab.after(0.3)
    assert node_states(lab) == {"n1": "READY"}
    assert verbs(lab) == ["boot", "stop", "boot"]
    assert lab.operation(started)["response"]["state"]["state"] == "ACTIVE"
    assert [line.seconds for line in lab.cloud.bill()] == [pytest.approx(0.3)]


def test_a_reset_whose_node_is_preempted_meanwhile_ends_cancelled():
    """The dead machines do not come back."""
    lab = a_lab()
    an_active(lab)
    started = lab.ok("POST", f"{QUEUED}/q1:reset")
    lab.cloud.preempt("n1", notice=False)
    lab.after(1)
    assert lab.operation(started)["error"]["code"] == 1
    assert (state(lab), lab.cloud.machines()) == (("SUSPENDED", "SERVICE"), [])


def test_all_of_it_survives_a_restart_of_the_local_cloud():
    """A snapshot in the middle of the wait goes on where it was."""
    lab = a_lab()
    submit(lab)
    lab.after(0.7)
    other = a_lab(lab.clock)
    other.cloud.restore(lab.cloud.snapshot())
    other.after(UNTIL_ACTIVE)
    assert (state(other), verbs(other)) == ("ACTIVE", ["boot"])


def test_a_state_file_from_before_queued_resources_is_read():
    """It has none."""
    lab = a_lab()
    del vars(lab.cloud.kernel.state)["queued"]
    data = lab.cloud.snapshot()
    other = a_lab()
    other.cloud.restore(data)
    assert other.ok("GET", QUEUED)["queuedResources"] == []
