"""A VM that never comes to run is given up, whoever asked for it; one that has run never is."""

import pytest

from orchestrator.domain.observation import Absent, Operation, Present, Unknown, VmState
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.engine.records.record_format import decode, encode
from orchestrator.planning.deployment_outcome import wind_down
from orchestrator.planning.events import events_of
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT
from orchestrator.planning.update_record import update_record
from orchestrator.planning.vm import decide_vm
from tests.kit.records import changed, record_of
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import NOW, vm, world

SPEC = a_spec(vm={})


def observed(*looks):
    """Return the last world and the record after observations of the VM, as pairs of seconds and result."""
    record = record_of(vm_accepted=True, bucket_observed=True, bucket_ready=True)
    for seconds, observed in looks:
        now = world(vm=observed, observed_at=NOW + seconds)
        record = update_record(record, now)
    return now, record


def vm_in(state):
    """Return the observation of a VM in a state."""
    return Present(vm(state=state))


@pytest.mark.parametrize("state", [VmState.PENDING, VmState.PROVISIONING, VmState.STAGING])
def test_a_creation_without_an_end_is_given_up(state):
    """Not before its time is over, and a look that fails between does not count against it."""
    early = observed((0, vm_in(state)), (60, Unknown("x")), (CREATE_TIMEOUT - 1, vm_in(state)))
    assert decide_vm(SPEC, *early).changes == ()
    (change,) = decide_vm(
        SPEC, *observed((0, vm_in(state)), (60, Unknown("x")), (CREATE_TIMEOUT, vm_in(state)))
    ).changes
    assert (change.kind, change.verb) == (Kind.VM, Verb.DELETE)
    assert "has not ended in 30 min" in change.message


@pytest.mark.parametrize(
    "state", [s for s in VmState if s not in {VmState.PENDING, VmState.PROVISIONING, VmState.STAGING}]
)
def test_a_vm_that_has_run_is_never_given_up(state):
    """Its disk may hold data, whatever state it is in now, and also after looks that failed."""
    looks = ((0, vm_in(state)), (9, Unknown("x")), (10, vm_in(VmState.STAGING)))
    found, record = observed(*looks, (9 * CREATE_TIMEOUT, vm_in(VmState.STAGING)))
    step = decide_vm(SPEC, found, record)
    assert (step.changes, step.waiting) == ((), "VM: STAGING")


def test_a_new_vm_of_the_same_name_starts_with_an_empty_record():
    """What has run is forgotten with the VM that it was."""
    looks = ((0, vm_in(VmState.RUNNING)), (10, Absent()), (20, vm_in(VmState.STAGING)))
    found, record = observed(*looks, (20 + CREATE_TIMEOUT, vm_in(VmState.STAGING)))
    assert [c.verb for c in decide_vm(SPEC, found, record).changes] == [Verb.DELETE]


def test_the_end_of_a_deployment_gives_it_up_too():
    """Nothing stays behind that would run one day, and be billed."""
    found, record = observed((0, vm_in(VmState.STAGING)), (CREATE_TIMEOUT, vm_in(VmState.STAGING)))
    plan = wind_down(found, record, Outcome.LIMIT_REACHED, "its budget is used up")
    assert [c.verb for c in plan.changes if c.kind is Kind.VM] == [Verb.DELETE]
    operation = Operation(
        "delete", Kind.VM, Verb.DELETE, "demo-vm", "us-central1-a", started_at=found.observed_at - 9
    )
    going = changed(record, operations=(operation,))
    assert [c for c in wind_down(found, going, Outcome.LIMIT_REACHED, "x").changes if c.kind is Kind.VM] == []


def test_a_creation_that_hangs_for_ever_does_not_keep_the_end_waiting():
    """Its operation stays in the record for as long as the service says that it runs."""
    found, record = observed((0, vm_in(VmState.STAGING)), (CREATE_TIMEOUT, vm_in(VmState.STAGING)))
    hanging = Operation(
        "create",
        Kind.VM,
        Verb.CREATE,
        "demo-vm",
        "us-central1-a",
        started_at=found.observed_at - CREATE_TIMEOUT,
    )
    plan = wind_down(found, changed(record, operations=(hanging,)), Outcome.DONE, "the job is done")
    assert [c.verb for c in plan.changes if c.kind is Kind.VM] == [Verb.DELETE]


def test_a_vm_that_becomes_running_is_an_event_once_and_again_after_a_stop():
    """A look that failed between says nothing new."""
    coming, runs, stopped = (vm_in(VmState[name]) for name in ("STAGING", "RUNNING", "TERMINATED"))
    looks = (coming, runs, runs, Unknown("x"), runs, stopped, coming, runs, Absent())
    record, texts = record_of(vm_accepted=True), []
    for seconds, observed in enumerate(looks):
        found = world(vm=observed, observed_at=NOW + seconds)
        after = update_record(record, found)
        texts += [
            (seconds, one.message) for one in events_of(record, after, found, 5) if one.kind == "vm-running"
        ]
        record = decode(encode(after, "mine"), "mine")
    text = "VM demo-vm is RUNNING in us-central1-a"
    assert texts == [(1, text), (7, text)]
