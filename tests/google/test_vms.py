"""VMs: request bodies, states, lists, request ids and operations, through the official client."""

import pytest

from orchestrator.domain.observation import Absent, Present, Unknown, VmState
from orchestrator.domain.plan import Kind, Verb
from orchestrator.emulator.state.cloud_settings import PROFILES
from orchestrator.errors import AuthError, ConflictError, NotFoundError, Retry, TransientError
from tests.google.adapter_lab import LABEL, OTHER_ZONE, ZONE, a_lab, a_vm, canned, vms_of


def test_a_vm_is_created_and_observed():
    """The observed VM has our name, label, state and addresses."""
    lab = a_lab()
    vms = vms_of(lab)
    operation = vms.create(a_vm())
    assert (operation.kind, operation.verb, operation.zone) == (Kind.VM, Verb.CREATE, ZONE)
    assert operation.started_at == pytest.approx(lab.clock.now(), abs=1)
    assert vms.poll(operation).done
    vm = vms.observe("demo-vm", ZONE).value
    assert (vm.name, vm.zone, vm.state, vm.spot) == ("demo-vm", ZONE, VmState.RUNNING, False)
    assert vm.labels[LABEL] == "demo"
    assert vm.stopped_at == 0.0
    assert vm.internal_ip.startswith("127.")


def test_a_preempted_vm_is_terminated_and_starts_again():
    """A spot VM stops, stays, and can be started."""
    lab = a_lab()
    vms = vms_of(lab)
    vms.create(a_vm(spot=True))
    assert vms.observe("demo-vm", ZONE).value.spot
    lab.local.preempt("demo-vm", notice=False)
    assert vms.observe("demo-vm", ZONE).value.state is VmState.TERMINATED
    assert vms.poll(vms.start("demo-vm", ZONE)).done
    assert vms.observe("demo-vm", ZONE).value.state is VmState.RUNNING


def test_a_stopped_vm_keeps_its_place():
    """Stop leaves a VM in TERMINATED; a VM that is gone has nothing to stop."""
    lab = a_lab()
    vms = vms_of(lab)
    vms.create(a_vm())
    assert vms.poll(vms.stop("demo-vm", ZONE)).done
    found = vms.observe("demo-vm", ZONE).value
    assert found.state is VmState.TERMINATED
    assert found.started_at <= found.stopped_at == pytest.approx(lab.clock.now(), abs=1)
    assert vms.stop("nobody", ZONE) is None


def test_deletion_of_what_is_gone_is_no_error():
    """Delete works once, and says None afterwards."""
    lab = a_lab()
    vms = vms_of(lab)
    vms.create(a_vm())
    assert vms.poll(vms.delete("demo-vm", ZONE)).done
    assert vms.observe("demo-vm", ZONE) == Absent()
    assert vms.delete("demo-vm", ZONE) is None


def test_a_name_that_another_order_holds_is_a_conflict():
    """The same name with another body is not the same request."""
    lab = a_lab()
    vms_of(lab).create(a_vm())
    with pytest.raises(ConflictError):
        vms_of(lab).create(a_vm(disk_gb=60))


def test_a_repeated_insert_is_the_same_operation():
    """After a lost answer the repeat finds the first operation, not a taken name."""
    lab = a_lab(latency=PROFILES["scaled"])
    lab.local.fail_next("compute.instances.insert", ["drop-answer"])
    with pytest.raises(TransientError):
        vms_of(lab).create(a_vm())
    operation = vms_of(lab).create(a_vm())
    assert operation.id == vms_of(lab).create(a_vm()).id


def test_a_vm_can_be_created_again_after_its_deletion():
    """Compute Engine remembers a request id longer than the VM lives; the new VM must come all the same."""
    lab = a_lab()
    vms_of(lab).create(a_vm())
    vms_of(lab).delete("demo-vm", ZONE)
    vms = vms_of(lab)
    operation = vms.create(a_vm())
    assert vms.poll(operation).done
    assert vms.observe("demo-vm", ZONE).value.state is VmState.RUNNING


def test_a_failed_insert_is_not_replayed_for_ever():
    """After a stockout the next try has a new request id."""
    lab = a_lab()
    vms = vms_of(lab)
    lab.local.fail_next("compute.instances.insert", ["stockout"])
    result = vms.poll(vms.create(a_vm()))
    assert (result.done, result.retry, result.code) == (True, Retry.CAPACITY, "TPU-300")
    assert vms.poll(vms.create(a_vm())).retry is None
    assert isinstance(vms.observe("demo-vm", ZONE), Present)


@pytest.mark.parametrize(
    ("case", "retry"),
    [
        ("stockout", Retry.CAPACITY),
        ("stockout with details", Retry.CAPACITY),
        ("quota", Retry.QUOTA),
        ("preempted while creating", Retry.TRANSIENT),
    ],
)
def test_an_error_inside_a_done_operation_is_a_failure(case, retry):
    """The operation is DONE and still did not work."""
    lab = a_lab()
    vms = vms_of(lab)
    lab.local.fail_next("compute.instances.insert", [case])
    result = vms.poll(vms.create(a_vm()))
    assert (result.done, result.retry) == (True, retry)
    assert result.message


def test_an_operation_error_without_http_status_is_a_failure():
    """The client itself would take this operation for a success."""
    from orchestrator.domain.observation import Operation
    from orchestrator.google.vms import ComputeVms

    body = {
        "name": "op",
        "status": "DONE",
        "error": {"errors": [{"code": "RESOURCE_NOT_READY", "message": "x"}]},
    }
    with canned(lambda _: (200, body)) as server:
        result = ComputeVms(server.clients()).poll(Operation("op", Kind.VM, Verb.START, "demo-vm", ZONE))
    assert (result.done, result.code) == (True, "TPU-406")


def test_operations_are_polled_at_the_same_endpoint():
    """The client's own future would ask compute.googleapis.com."""
    from orchestrator.google.vms import ComputeVms

    def answer(found):
        return 200, {"name": "op", "status": "RUNNING"}

    with canned(answer) as server:
        vms = ComputeVms(server.clients())
        assert not vms.poll(vms.delete("demo-vm", ZONE)).done
        methods = [
            (found.method, found.path.partition("?")[0].rpartition("/")[2]) for found in server.requests
        ]
    assert methods == [("DELETE", "demo-vm"), ("GET", "op")]


def test_labelled_lists_all_zones_and_only_ours():
    """VMs with the label come back from every zone."""
    lab = a_lab()
    vms = vms_of(lab)
    vms.create(a_vm())
    vms.create(a_vm(name="other-vm", zone=OTHER_ZONE))
    vms.create(a_vm(name="stranger", labels={LABEL: "stranger"}))
    observed = vms.labelled(LABEL, "demo", [ZONE, OTHER_ZONE])
    assert [vm.name for vm in observed.value] == ["demo-vm", "other-vm"]


def test_one_list_shows_the_vms_of_all_zones_and_only_ours():
    """One call; its pages are put together, and a zone without VMs is no gap."""
    lab = a_lab()
    vms = vms_of(lab)
    for zone in (ZONE, OTHER_ZONE):
        vms.create(a_vm(zone=zone))
    vms.create(a_vm(name="stranger", labels={LABEL: "stranger"}))
    before = lab.local.calls.copy()
    found = vms.list_all_zones(LABEL, "demo").value
    assert {(vm.name, vm.zone) for vm in found.found} == {("demo-vm", OTHER_ZONE), ("demo-vm", ZONE)}
    assert found.unreachable == ()
    assert lab.local.calls - before == {"compute.instances.aggregatedList": 1}


def test_where_a_list_of_all_zones_could_not_look_is_named():
    """By a warning on the zone; a list that fails shows nothing at all."""
    lab = a_lab()
    vms = vms_of(lab)
    vms.create(a_vm())
    lab.local.fail_next("compute.instances.aggregatedList", ["unreachable"])
    found = vms.list_all_zones(LABEL, "demo").value
    assert (found.found, ZONE in found.unreachable) == ((), True)
    denied = a_lab(denied_permissions=frozenset({"compute.instances.list"}))
    assert isinstance(vms_of(denied).list_all_zones(LABEL, "demo"), Unknown)


def test_a_warned_page_makes_the_list_unknown():
    """A list with an UNREACHABLE warning is not complete."""
    from orchestrator.google.vms import ComputeVms

    with canned(lambda _: (200, {"items": [], "warning": {"code": "UNREACHABLE", "message": "x"}})) as server:
        assert isinstance(ComputeVms(server.clients()).labelled(LABEL, "demo", [ZONE]), Unknown)


def test_an_error_on_observing_is_unknown():
    """A denied look is not an absence."""
    lab = a_lab(denied_permissions=frozenset({"compute.instances.get"}))
    observed = vms_of(lab).observe("demo-vm", ZONE)
    assert isinstance(observed, Unknown)
    assert observed.retry is Retry.PERMANENT


def test_a_404_of_a_proxy_is_not_an_absence():
    """Only Google's own form of 404 proves that the VM is gone."""
    from orchestrator.google.vms import ComputeVms

    with canned(lambda _: (404, b"<html>nothing here</html>")) as server:
        assert isinstance(ComputeVms(server.clients()).observe("demo-vm", ZONE), Unknown)


def test_a_denied_create_names_permission_and_role():
    """The user learns what to ask for."""
    lab = a_lab(denied_permissions=frozenset({"compute.instances.create"}))
    with pytest.raises(AuthError) as caught:
        vms_of(lab).create(a_vm())
    assert "roles/compute.instanceAdmin.v1" in caught.value.hint


def test_host_keys_come_from_guest_attributes():
    """Keys are lines as known_hosts has them; before the boot there are none."""
    lab = a_lab()
    vms = vms_of(lab)
    vms.create(a_vm())
    with pytest.raises(NotFoundError):
        vms.host_keys("demo-vm", ZONE)
    (machine,) = lab.machines
    lab.local.put_guest_attribute(machine.id, "hostkeys", "ssh-ed25519", "AAAAC3")
    assert vms.host_keys("demo-vm", ZONE) == ("ssh-ed25519 AAAAC3",)


def test_a_vm_that_google_ended_is_gone():
    """A standard VM is deleted when its life is over, with nobody asking."""
    lab = a_lab()
    vms = vms_of(lab)
    vms.create(a_vm(ttl=3600))
    lab.clock.advance(3700)
    assert vms.observe("demo-vm", ZONE) == Absent()
