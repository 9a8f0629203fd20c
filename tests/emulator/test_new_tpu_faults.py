"""TPUs that come up otherwise than they should, and what the API says of their maintenance."""

import pickle

import pytest

from orchestrator.errors import LocalCloudError
from tests.conformance.discovery import Witness
from tests.emulator.emulator_lab import NODES, a_lab, node_body

CREATE = "tpu.nodes.create"


def born(fault, lab=None):
    """Return a lab in which a node of four workers was asked for, to come up with *fault*."""
    lab = lab or a_lab()
    lab.cloud.fail_next(CREATE, [fault])
    lab.ok("POST", f"{NODES}?nodeId=n1", node_body(acceleratorType="v5litepod-16"))
    lab.after(2)
    return lab


@pytest.mark.parametrize("health", ["TIMEOUT", "UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE"])
def test_a_node_can_be_born_unhealthy(health):
    """READY, its machines run, and it never was HEALTHY; the next one is."""
    lab = born(f"born:{health}")
    node = lab.ok("GET", f"{NODES}/n1")
    assert (node["state"], node["health"]) == ("READY", health)
    assert [verb for verb, _ in lab.machines.calls] == ["boot"] * 4
    assert lab.node("n2")["health"] == "HEALTHY"


def test_a_silent_node_is_ready_and_healthy_and_runs_no_startup_script():
    """Nothing that the API shows distinguishes it from others."""
    lab = born("never-reports")
    node = lab.ok("GET", f"{NODES}/n1")
    assert (node["state"], node["health"]) == ("READY", "HEALTHY")
    assert [machine.silent for machine in lab.cloud.machines()] == [True] * 4
    lab.node("n2")
    assert [machine.silent for machine in lab.cloud.machines()] == [True] * 4 + [False]


def test_machines_of_an_earlier_version_are_silent_still():
    """A state on disk names the field as it was then."""
    now = pickle.dumps((1, born("never-reports").cloud.kernel.state), protocol=2)
    earlier = now.replace(b"X\x06\0\0\0silent", b"X\x04\0\0\0mute")
    assert b"mute" in earlier
    other = a_lab()
    other.cloud.restore(earlier)
    assert [machine.silent for machine in other.cloud.machines()] == [True] * 4


def test_a_node_may_work_while_the_api_says_creating():
    """Its machines run and can be reached; READY comes later, and boots nothing again."""
    lab = born("late-ready:600")
    node = lab.ok("GET", f"{NODES}/n1")
    assert (node["state"], len(node["networkEndpoints"])) == ("CREATING", 4)
    assert [verb for verb, _ in lab.machines.calls] == ["boot"] * 4
    lab.after(600)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    assert [verb for verb, _ in lab.machines.calls] == ["boot"] * 4


@pytest.mark.parametrize(
    ("method", "fault"),
    [
        ("tpu.nodes.get", "never-reports"),
        ("compute.instances.insert", "born:TIMEOUT"),
        (CREATE, "born:HEALTHY"),
        (CREATE, "born"),
        (CREATE, "late-ready"),
        (CREATE, "late-ready:soon"),
    ],
)
def test_a_birth_that_cannot_be_is_refused(method, fault):
    """Nothing of it remains, and the error says what is known."""
    lab = a_lab()
    with pytest.raises(LocalCloudError):
        lab.cloud.fail_next(method, [fault])
    assert lab.cloud.unused_faults() == []


def test_a_maintenance_is_announced_begins_and_ends():
    """In the words of the API; the node is what it was, all the while."""
    lab = a_lab()
    lab.node()
    lab.cloud.set_node_state("n1", "maintenance:600")
    reported = lab.ok("GET", f"{NODES}/n1")["upcomingMaintenance"]
    assert (reported["type"], reported["maintenanceStatus"]) == ("SCHEDULED", "PENDING")
    assert reported["windowStartTime"] < reported["windowEndTime"]
    lab.after(600)
    node = lab.ok("GET", f"{NODES}/n1")
    assert node["upcomingMaintenance"] == {**reported, "maintenanceStatus": "ONGOING"}
    assert (node["state"], node["health"]) == ("READY", "HEALTHY")
    lab.after(3 * 3600)
    assert "upcomingMaintenance" not in lab.ok("GET", f"{NODES}/n1")
    with pytest.raises(LocalCloudError):
        lab.cloud.set_node_state("n1", "maintenance:soon")


def test_an_announced_maintenance_has_the_form_of_googles_schema():
    """Fields, types and enum values, held against the discovery document."""
    lab, witness = born("late-ready:600"), Witness()
    lab.cloud.set_node_state("n1", "maintenance")
    shown = lab.observe(witness, "GET", f"{NODES}/n1")
    assert shown["upcomingMaintenance"]["canReschedule"] is False
    assert witness.met
    assert witness.faults == {}
