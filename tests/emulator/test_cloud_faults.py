"""Faults on purpose: each call meets what was planned for it, once."""

import pytest

from orchestrator.emulator.state.api_errors import ApiError, ErrorArrival, cases
from orchestrator.emulator.state.kernel import CallTarget
from orchestrator.emulator.state.values import methods
from orchestrator.errors import LocalCloudError
from tests.emulator.emulator_lab import NODES, VMS, a_lab, node_body

HOUR = 3600.0


def test_each_call_meets_one_fault_in_order_then_none():
    """Faults are used up one by one; the calls are counted."""
    lab = a_lab()
    lab.node()
    lab.cloud.fail_next("tpu.nodes.get", ["transient", "node not found"])
    statuses = [lab.call("GET", f"{NODES}/n1")[0] for _ in range(3)]
    assert statuses == [503, 404, 200]
    assert lab.cloud.calls["tpu.nodes.get"] == 4
    assert lab.cloud.unused_faults() == []


def test_a_dropped_answer_has_its_effect():
    """The caller sees 503, and the node is there: the name is the key."""
    lab = a_lab()
    lab.cloud.fail_next("tpu.nodes.create", ["drop-answer"])
    status, answer = lab.call("POST", f"{NODES}?nodeId=n1", node_body())
    assert (status, answer["error"]["status"]) == (503, "UNAVAILABLE")
    assert lab.call("POST", f"{NODES}?nodeId=n1", node_body())[0] == 409
    lab.after(2)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"


def test_a_stuck_operation_never_ends():
    """The node is CREATING for ever, and can still be deleted."""
    lab = a_lab()
    lab.cloud.fail_next("tpu.nodes.create", ["stuck"])
    started = lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    lab.after(30 * 24 * HOUR)
    assert lab.operation(started)["done"] is False
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(1)
    assert lab.call("GET", f"{NODES}/n1")[0] == 404


def test_an_operation_can_fail_by_name_and_leaves_things_as_they_were():
    """A delete that fails leaves the node READY; a create that fails leaves nothing."""
    lab = a_lab()
    lab.node()
    lab.cloud.fail_next("tpu.nodes.delete", ["stockout"])
    started = lab.ok("DELETE", f"{NODES}/n1")
    lab.after(1)
    assert lab.operation(started)["error"]["code"] == 8
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    assert [call for call, _ in lab.machines.calls] == ["boot"]
    assert lab.cloud.bill()[0].seconds == pytest.approx(1.0)
    lab.cloud.fail_next("tpu.nodes.create", ["zone serves only reservations"])
    created = lab.ok("POST", f"{NODES}?nodeId=n2", node_body())
    lab.after(1)
    assert lab.operation(created)["error"] == {"code": 5, "message": "Reservation not found"}
    assert lab.call("GET", f"{NODES}/n2")[0] == 404


@pytest.mark.parametrize("verb", ["start", "stop", "delete", "reset", "setLabels"])
def test_vm_operations_fail_without_effect(verb):
    """The operation carries the error; the VM is what it was before."""
    lab = a_lab()
    vm = lab.vm()
    if verb == "start":
        lab.ok("POST", f"{VMS}/v1/stop")
        lab.after(1)
    before = lab.ok("GET", f"{VMS}/v1")["status"]
    lab.cloud.fail_next(f"compute.instances.{verb}", ["stockout"])
    method, path = ("DELETE", "") if verb == "delete" else ("POST", f"/{verb}")
    body = {"labels": {"x": "y"}, "labelFingerprint": vm["labelFingerprint"]}
    started = lab.ok(method, f"{VMS}/v1{path}", body)
    lab.after(5)
    assert lab.operation(started)["httpErrorStatusCode"] == 503
    after = lab.ok("GET", f"{VMS}/v1")
    assert (after["status"], after["labels"]) == (before, {})


def test_latency_lengthens_operations_and_delays_reads():
    """A create takes five seconds more; a read answers five seconds later."""
    lab = a_lab()
    lab.cloud.fail_next("tpu.nodes.create", ["latency:5"])
    lab.ok("POST", f"{NODES}?nodeId=n1", node_body())
    lab.after(6)
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "CREATING"
    lab.cloud.fail_next("tpu.nodes.get", ["latency:5"])
    before = lab.clock.now()
    assert lab.ok("GET", f"{NODES}/n1")["state"] == "READY"
    assert lab.clock.now() - before == pytest.approx(5)


@pytest.mark.parametrize(
    ("method", "failure"),
    [
        ("tpu.nodes.explode", "transient"),
        ("tpu.nodes.get", "no such case"),
        ("tpu.nodes.get", "stuck"),
        ("tpu.nodes.get", "stockout"),
        ("tpu.nodes.create", "latency:soon"),
        ("tpu.nodes.create", "latency:-1"),
        ("storage.objects.insert", "stockout"),
    ],
)
def test_faults_that_cannot_happen_are_refused(method, failure):
    """Unknown methods and failures are refused, and none of the list is added."""
    lab = a_lab()
    with pytest.raises(LocalCloudError) as caught:
        lab.cloud.fail_next(method, ["drop-answer", failure])
    assert ("latency" if failure.startswith("latency") else method) in str(caught.value)
    assert lab.cloud.unused_faults() == []


def test_unused_faults_are_reported():
    """A scenario that planned more than happened can say so."""
    lab = a_lab()
    lab.cloud.fail_next("storage.objects.insert", ["precondition"])
    ((method, fault),) = lab.cloud.unused_faults()
    assert (method, fault.case) == ("storage.objects.insert", "precondition")


def test_an_injected_refusal_names_account_and_permission():
    """As a real one does: the texts of the table have a placeholder for each."""
    lab = a_lab()
    lab.cloud.fail_next("storage.objects.get", ["no access"])
    with pytest.raises(
        ApiError, match=r"you@local\.invalid does not have storage\.objects\.get access to .* bucket\."
    ):
        lab.cloud.kernel.admit("storage.objects.get", CallTarget())


@pytest.mark.parametrize(("api", "name"), sorted(cases()))
def test_every_row_of_the_error_table_can_be_made(api, name):
    """Each row builds the error of its plane, without a placeholder left in its text."""
    known = {
        key: key.upper()
        for key in [
            "project",
            "zone",
            "region",
            "node",
            "name",
            "number",
            "quota",
            "type",
            "metric",
            "permission",
            "email",
            "bucket",
        ]
    }
    values = {**known, "object": "O", "n": 1, "hex16": "0" * 16, "hex": "0" * 16}
    row = cases()[api, name]
    error = row.error(**values) if row.where is ErrorArrival.CALL else row.operation_error(**values)
    assert "{" not in error.message
    assert error.message
    if isinstance(error, ApiError):
        assert error.status == row.http_status


def test_every_method_has_a_table_of_errors_and_a_permission():
    """No method can be named in a fault that the tables do not cover."""
    for method in methods.ALL:
        assert methods.error_table_of(method) in {api for api, _ in cases()}
        assert methods.permission_of(method).split(".")[0] == method.split(".")[0]


def test_a_name_that_is_of_nothing_is_refused_in_the_words_of_the_commands():
    """People know TPUs and VMs; a node is the API's word."""
    lab = a_lab()
    with pytest.raises(LocalCloudError, match="nosuch: no such TPU or VM"):
        lab.cloud.preempt("nosuch")
