"""Faults of queued resources: no stock, provisioning that falls back, fails or never ends, lost answers."""

from dataclasses import replace

import pytest

from orchestrator.clock import VirtualClock
from orchestrator.emulator.state.cloud_settings import PROFILES
from orchestrator.errors import LocalCloudError
from tests.emulator.emulator_lab import ZONE, a_lab
from tests.emulator.queued_kit import (
    QUEUED,
    UNTIL_ACTIVE,
    an_active,
    node_states,
    queued_body,
    spec,
    state,
    submit,
)

CREATE = "tpu.queuedResources.create"
DAY = 24 * 3600


def record(lab, seconds, step=0.1):
    """Return the states observed in the next *seconds*, each once in a row."""
    observed = []
    for _ in range(round(seconds / step)):
        lab.after(step)
        if not observed or observed[-1] != state(lab):
            observed.append(state(lab))
    return observed


def test_a_zone_without_stock_keeps_it_waiting_until_there_is_some():
    """A stockout is no error of a queued resource; it looks again by itself."""
    lab = a_lab(stockouts=frozenset({ZONE}))
    submit(lab)
    lab.after(DAY)
    assert state(lab) == "WAITING_FOR_RESOURCES"
    lab.cloud.kernel.settings = replace(lab.cloud.kernel.settings, stockouts=frozenset())
    lab.after(1 + UNTIL_ACTIVE)
    assert state(lab) == "ACTIVE"


def test_stock_that_goes_while_nodes_are_made_puts_it_back():
    """PROVISIONING, WAITING_FOR_RESOURCES again, without a node."""
    lab = a_lab()
    submit(lab)
    lab.after(2.0)
    lab.cloud.kernel.settings = replace(lab.cloud.kernel.settings, stockouts=frozenset({ZONE}))
    assert record(lab, 3) == ["PROVISIONING", "WAITING_FOR_RESOURCES"]
    assert (node_states(lab), lab.machines.calls) == ({}, [])


def test_no_capacity_holds_one_request_back():
    """For some seconds, or for ever; other requests are served meanwhile."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["no-capacity:100", "no-capacity"])
    submit(lab, spec("n1"), name="q1")
    submit(lab, spec("n2"), name="q2")
    submit(lab, spec("n3"), name="q3")
    lab.after(99)
    assert [state(lab, name) for name in ("q1", "q2", "q3")] == ["WAITING_FOR_RESOURCES"] * 2 + ["ACTIVE"]
    lab.after(5)
    assert (state(lab, "q1"), state(lab, "q2")) == ("ACTIVE", "WAITING_FOR_RESOURCES")
    lab.after(DAY)
    assert state(lab, "q2") == "WAITING_FOR_RESOURCES"


def test_provisioning_falls_back_once():
    """Its nodes are taken back, it waits, and the second try succeeds."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["fall-back"])
    submit(lab)
    waiting = ["WAITING_FOR_RESOURCES", "PROVISIONING"]
    assert record(lab, 8) == [None, "CREATING", *waiting, *waiting, "ACTIVE"]
    assert [call for call, _ in lab.machines.calls] == ["boot"]


def test_a_queued_resource_that_falls_back_after_its_deadline_fails():
    """There is no way back into the queue."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["fall-back"])
    submit(lab, queueingPolicy={"validUntilDuration": "2s"})
    lab.after(2.5)
    assert state(lab) == "PROVISIONING"
    lab.after(1)
    assert (state(lab), node_states(lab)) == ("FAILED", {})


def test_provisioning_can_fail_late():
    """PROVISIONING, SUSPENDING by the service, FAILED with code 13; it stays."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["late-failure"])
    submit(lab)
    assert record(lab, 6)[-3:] == ["PROVISIONING", ("SUSPENDING", "SERVICE"), ("FAILED", "SERVICE")]
    error = lab.ok("GET", f"{QUEUED}/q1")["state"]["failedData"]["error"]
    assert error == {"code": 13, "message": "an internal error has occurred"}
    assert node_states(lab) == {}


def test_provisioning_can_go_on_for_ever():
    """The node comes and goes, and nothing ever runs; force ends it."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["never-active"])
    submit(lab)
    lab.after(2)
    observed = set()
    for _ in range(100):
        lab.after(0.7)
        observed.add((state(lab), node_states(lab).get("n1")))
    assert observed == {("PROVISIONING", None), ("PROVISIONING", "CREATING")}
    lab.ok("DELETE", f"{QUEUED}/q1?force=true")
    lab.after(10)
    assert (state(lab), node_states(lab), lab.machines.calls) == (None, {}, [])


def test_a_creation_that_fails_late_leaves_a_failed_one():
    """The operation and the queued resource carry the error; it holds its name until it is deleted."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["flex start unsupported"])
    started = submit(lab)
    lab.after(0.5)
    assert lab.operation(started)["error"]["code"] == 3
    assert lab.ok("GET", f"{QUEUED}/q1")["state"]["failedData"]["error"]["code"] == 3


def test_a_creation_that_never_ends_stays_creating():
    """It can be deleted, which cancels the creation."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["stuck"])
    started = submit(lab)
    lab.after(DAY)
    assert (state(lab), lab.operation(started)["done"]) == ("CREATING", False)
    lab.ok("DELETE", f"{QUEUED}/q1")
    assert lab.operation(started)["error"]["code"] == 1


@pytest.mark.parametrize("verb", ["delete", "reset"])
def test_operations_fail_without_effect(verb):
    """The operation carries the error, and everything runs on."""
    lab = a_lab()
    an_active(lab)
    lab.cloud.fail_next(f"tpu.queuedResources.{verb}", ["stockout"])
    call = ("DELETE", f"{QUEUED}/q1?force=true") if verb == "delete" else ("POST", f"{QUEUED}/q1:reset")
    started = lab.ok(*call)
    lab.after(1)
    assert lab.operation(started)["error"]["code"] == 8
    assert (state(lab), node_states(lab)) == ("ACTIVE", {"n1": "READY"})
    assert [call for call, _ in lab.machines.calls] == ["boot"]


def test_a_lost_answer_has_its_effect():
    """The caller sees 503, the request is in the queue; asking again is 409."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["drop-answer"])
    path = f"{QUEUED}?queuedResourceId=q1"
    assert lab.call("POST", path, queued_body())[0] == 503
    assert lab.call("POST", path, queued_body())[0] == 409
    lab.after(UNTIL_ACTIVE)
    assert state(lab) == "ACTIVE"


@pytest.mark.parametrize(
    ("method", "failure"),
    [
        ("tpu.nodes.create", "no-capacity"),
        ("tpu.queuedResources.delete", "fall-back"),
        (CREATE, "no-capacity:soon"),
        (CREATE, "fall-back:3"),
        ("tpu.queuedResources.get", "stuck"),
        ("tpu.queuedResources.get", "unreachable"),
    ],
)
def test_faults_that_cannot_happen_are_refused(method, failure):
    """None is added."""
    lab = a_lab()
    with pytest.raises(LocalCloudError):
        lab.cloud.fail_next(method, [failure])
    assert lab.cloud.unused_faults() == []


def test_a_queued_resource_can_be_moved_by_hand():
    """Chosen in spite of the stock, taken back, under its older name, suspended, failed."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["no-capacity"])
    submit(lab)
    lab.after(1)
    lab.cloud.set_queued_state("q1", "ACCEPTED")
    assert lab.ok("GET", f"{QUEUED}/q1")["state"] == {"state": "ACCEPTED", "acceptedData": {}}
    lab.cloud.set_queued_state(f"{ZONE}/q1", "FAILED")
    assert state(lab) == "FAILED"
    an_active(lab, spec("n2"), name="q2")
    lab.cloud.set_queued_state("q2", "SUSPENDING")
    lab.after(0.5)
    assert (state(lab, "q2"), lab.cloud.machines()) == (("SUSPENDED", "SERVICE"), [])
    lab.cloud.fail_next(CREATE, ["no-capacity:3600"])
    submit(lab, spec("n3"), name="q3")
    lab.after(1)
    lab.cloud.set_queued_state("q3", "PROVISIONING")
    assert state(lab, "q3") == "PROVISIONING"
    lab.after(UNTIL_ACTIVE)
    assert state(lab, "q3") == "ACTIVE"
    lab.cloud.set_queued_state("q3", "WAITING_FOR_RESOURCES")
    assert state(lab, "q3") == "WAITING_FOR_RESOURCES"


@pytest.mark.parametrize(
    ("name", "wanted"), [("nope", "FAILED"), ("q1", "BROKEN"), ("q1", "ACTIVE"), ("q1", "SUSPENDING")]
)
def test_moves_that_make_no_sense_are_refused(name, wanted):
    """An unknown name or state, or one that cannot come next; nothing changes."""
    lab = a_lab()
    lab.cloud.fail_next(CREATE, ["no-capacity"])
    submit(lab)
    lab.after(1)
    with pytest.raises(LocalCloudError) as caught:
        lab.cloud.set_queued_state(name, wanted)
    assert caught.value.changed
    assert state(lab) == "WAITING_FOR_RESOURCES"


def test_a_cloud_without_latencies_gives_nodes_at_once_and_tries_again_at_intervals():
    """ACTIVE at the next look; without stock one try a second."""
    lab = a_lab(latency=PROFILES["instant"])
    submit(lab)
    assert state(lab) == "ACTIVE"
    lab.cloud.fail_next(CREATE, ["no-capacity:60", "never-active"])
    submit(lab, spec("n2"), name="q2")
    submit(lab, spec("n3"), name="q3")
    lab.after(59)
    assert (state(lab, "q2"), state(lab, "q3")) == ("WAITING_FOR_RESOURCES", "PROVISIONING")
    lab.after(2)
    assert state(lab, "q2") == "ACTIVE"


EARLIER = {
    "queued.poll": "queued.look",
    "queued.node-ended": "queued.left",
    "queued.nodes-deleted": "queued.swept",
}


def restored_from_an_earlier_version(lab):
    """Return a local cloud with the state of *lab*, as versions stored it that had other names of its events."""
    events, other = lab.cloud.kernel.state.heap, a_lab(VirtualClock(lab.clock.now()))
    changed = [one.kind for one in events if one.kind in EARLIER]
    events[:] = [replace(one, kind=EARLIER.get(one.kind, one.kind)) for one in events]
    other.cloud.restore(lab.cloud.snapshot())
    return other, changed


def test_a_queued_resource_of_an_earlier_version_goes_on():
    """What that version had planned happens: it becomes ACTIVE, and its preempted node is deleted."""
    lab = a_lab()
    submit(lab)
    lab.after(0.6)
    lab, changed = restored_from_an_earlier_version(lab)
    assert changed == ["queued.poll"]
    lab.after(UNTIL_ACTIVE)
    assert state(lab) == "ACTIVE"
    with lab.cloud.lock:
        lab.cloud.tpu.preempt(lab.cloud.nodes()[0], notice=False)
    lab, changed = restored_from_an_earlier_version(lab)
    assert changed == ["queued.node-ended"]
    lab.after(0.1)
    lab, changed = restored_from_an_earlier_version(lab)
    assert changed == ["queued.nodes-deleted"]
    lab.after(5)
    assert state(lab) == ("SUSPENDED", "SERVICE")
