"""TPU nodes that the platform takes, breaks or hides."""

import pytest

from orchestrator.errors import LocalCloudError
from tests.emulator.emulator_lab import NODES, SPOT_NODE, a_lab, node_body

DAY = 24 * 3600


def verbs(lab):
    """Return what the machines were asked for."""
    return [call for call, _ in lab.machines.calls]


def test_a_preempted_slice_gets_its_notice_then_loses_every_machine():
    """Notice on all workers at once, kill after the window; the node stays as PREEMPTED."""
    lab = a_lab()
    lab.node(acceleratorType="v5litepod-16", **SPOT_NODE)
    workers = [machine.id for machine in lab.cloud.machines()]
    lab.cloud.preempt("n1")
    assert verbs(lab) == ["boot"] * 4 + ["notice"] * 4
    assert all(lab.cloud.machine_state(worker).preempted for worker in workers)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    lab.after(2.0)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "PREEMPTED"
    assert verbs(lab)[8:] == ["remove"] * 4
    assert lab.cloud.machines() == []
    assert lab.call("POST", f"{NODES}?nodeId=n1", node_body())[0] == 409


def test_a_preemption_without_notice_kills_at_once():
    """No machine is warned."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.cloud.preempt("n1", notice=False)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "PREEMPTED"
    assert verbs(lab) == ["boot", "remove"]


def test_a_node_can_be_preempted_while_it_is_created():
    """The operation ends with code 3 and the known text; the node stays as PREEMPTED."""
    lab = a_lab()
    started = lab.ok("POST", f"{NODES}?nodeId=n1", node_body(**SPOT_NODE))
    lab.cloud.preempt("n1")
    lab.after(10)
    error = lab.operation(started)["error"]
    assert error["code"] == 3
    assert "update is not supported while in state PREEMPTED" in error["message"]
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "PREEMPTED"
    assert lab.machines.calls == []


def test_a_node_deleted_during_its_notice_is_just_gone():
    """The planned kill does not bring the node back as PREEMPTED."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.cloud.preempt("n1")
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(10)
    assert lab.call("GET", f"{NODES}/n1")[0] == 404


def test_a_notice_does_not_reach_the_next_node_of_the_same_name():
    """A node created again under the name is not killed by the notice of the one before."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.cloud.preempt("n1")
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(0.5)
    lab.ok("POST", f"{NODES}?nodeId=n1", node_body(**SPOT_NODE))
    lab.after(10)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"


def test_preemptible_nodes_end_after_a_day_and_spot_nodes_do_not():
    """TERMINATED is the 24 hour limit of `preemptible`."""
    lab = a_lab()
    lab.node("old", schedulingConfig={"preemptible": True})
    lab.node("new", **SPOT_NODE)
    lab.after(DAY)
    assert lab.ok("GET", f"{NODES}/old")["state"] == "TERMINATED"
    assert lab.ok("GET", f"{NODES}/new")["state"] == "READY"


def test_one_machine_of_a_ready_slice_can_die():
    """The node says READY while worker 2 is dead."""
    lab = a_lab()
    lab.node(acceleratorType="v5litepod-16")
    lab.cloud.kill_worker("n1", 2)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    running = [lab.cloud.machine_state(machine.id).running for machine in lab.cloud.machines()]
    assert running == [True, True, False, True]
    assert verbs(lab)[4:] == ["stop"]


@pytest.mark.parametrize("state", ["REPAIRING", "HIDDEN", "HIDING", "UNKNOWN"])
def test_a_node_can_be_put_into_odd_states(state):
    """The state is shown as it is, and the node can be deleted from it."""
    lab = a_lab()
    lab.node()
    lab.cloud.set_node_state("n1", state)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == state
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(1)
    assert lab.call("GET", f"{NODES}/n1")[0] == 404


def test_an_unhealthy_node_stays_ready():
    """UNHEALTHY_MAINTENANCE is health, not state."""
    lab = a_lab()
    lab.node()
    lab.cloud.set_node_state("n1", "UNHEALTHY_MAINTENANCE")
    node = lab.ok("GET", f"{NODES}/n1")
    assert (node["state"], node["health"]) == ("READY", "UNHEALTHY_MAINTENANCE")


def test_a_node_can_vanish_without_an_operation():
    """The node and its machines are gone; only the creation is on record."""
    lab = a_lab()
    lab.node()
    lab.cloud.set_node_state("n1", "vanish")
    assert lab.ok("GET", NODES)["nodes"] == []
    assert verbs(lab) == ["boot", "remove"]
    assert len(lab.ok("GET", NODES.replace("nodes", "operations"))["operations"]) == 1


def test_controls_refuse_what_makes_no_sense():
    """On-demand nodes, unknown names, states and workers are refused, each with the next step."""
    lab = a_lab()
    lab.node()
    for act in (
        lambda: lab.cloud.preempt("n1"),
        lambda: lab.cloud.preempt("nope"),
        lambda: lab.cloud.set_node_state("n1", "BROKEN"),
        lambda: lab.cloud.kill_worker("n1", 1),
    ):
        version = lab.cloud.version
        with pytest.raises(LocalCloudError) as caught:
            act()
        assert caught.value.changed
        assert lab.cloud.version == version
