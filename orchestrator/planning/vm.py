"""
Decide about the VM: create it, restart it, and give up one that never comes up.

The disk of a VM that has never run is empty and may be deleted. Any other disk may hold the only copy of
something.
"""

from collections.abc import Sequence

from orchestrator.domain import names
from orchestrator.domain.first_seen import VM_ABSENT, VM_COMING, VM_HAS_RUN, VM_RUNNING, FirstSeen
from orchestrator.domain.observation import Absent, Observed, Operation, Present, Unknown, Vm, VmState, World
from orchestrator.domain.plan import Change, Decision, Kind, LoopRule, Verb
from orchestrator.domain.record import CONFIRMED_AFTER, Record, lasted
from orchestrator.domain.spec import Spec
from orchestrator.domain.wait import Wait
from orchestrator.planning.tpu.next_zone import held_back
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT

COMING = frozenset({VmState.PENDING, VmState.PROVISIONING, VmState.STAGING})


def decide_vm(spec: Spec, world: World, record: Record) -> Decision:
    """Return the change that the VM needs: create it, start it after a stop or preemption, or none."""
    if spec.vm == "none":
        return Decision(rule=LoopRule.VM_NONE)
    name, zone = names.vm_name(spec), names.vm_zone(spec)
    vm = world.vm
    if isinstance(vm, Unknown):
        return Decision(wait=Wait(f"VM: not known ({vm.message})"), rule=LoopRule.UNKNOWN)
    asked = [o for o in record.operations if o.kind is Kind.VM]
    late = [o for o in asked if o.started_at and world.observed_at - o.started_at >= CREATE_TIMEOUT]
    # One request at a time: a second one is refused, and that refusal would count.
    if len(late) < len(asked):
        return Decision(wait=Wait("VM: an operation is running"), wake_in=5.0, rule=LoopRule.VM_OPERATION)
    if isinstance(world.bucket, Absent) and record.bucket.observed:
        text = "VM: left as it is, since the bucket that held the job's data is gone"
        return Decision(wait=Wait(text), rule=LoopRule.BUCKET_GONE)
    if lacks_named_vm(spec, world):
        return Decision(wait=Wait(f"VM: {missing_text(spec, record)}"), rule=LoopRule.VM_CREATE)
    if isinstance(vm, Absent):
        if record.vm.accepted and not lasted(record, world, VM_ABSENT, CONFIRMED_AFTER):
            text = "VM: not listed any more; a second look makes sure that it is gone"
            return Decision(wait=Wait(text), rule=LoopRule.ABSENCE_UNCONFIRMED)
        message = "it is gone" if record.vm.accepted else "there is none yet"
        create = Change(Kind.VM, Verb.CREATE, name, message, zone)
        return held_back(spec, record, world, Kind.VM, zone) or Decision((create,), rule=LoopRule.VM_CREATE)
    if vm.value.state in {VmState.TERMINATED, VmState.SUSPENDED}:
        message = "it was preempted" if vm.value.spot else "it is stopped"
        start = Change(Kind.VM, Verb.START, name, message, vm.value.zone)
        return held_back(spec, record, world, Kind.VM, vm.value.zone) or Decision(
            (start,), rule=LoopRule.VM_START
        )
    if vm.value.state is VmState.RUNNING:
        return Decision(rule=LoopRule.VM_RUNNING)
    return _unfinished(vm.value, late, world, record)


def lacks_named_vm(spec: Spec, world: World) -> bool:
    """Return whether the VM of `vm.name` is absent; the user must create it, tpuctl does not."""
    return names.takes_vm(spec) and isinstance(world.vm, Absent)


def missing_text(spec: Spec, record: Record) -> str:
    """Return a clause for people: the VM of `vm.name` is not adopted yet, or was deleted."""
    name = names.vm_name(spec)
    if not record.vm.accepted:
        return f"{name} is not part of the deployment yet; run: tpuctl adopt --vm {name}"
    return f"{name} is gone; it was adopted, so tpuctl makes none in its place"


def _unfinished(vm: Vm, late: Sequence[Operation], world: World, record: Record) -> Decision:
    """Delete a VM whose creation does not end; wait for every other one that neither runs nor is stopped."""
    if names.ADOPTED_LABEL not in vm.labels and any(o.verb is Verb.CREATE for o in late):
        # It has never run, so its disk is empty.
        message = f"its creation has not ended in {CREATE_TIMEOUT / 60:.0f} min"
        return Decision(
            (Change(Kind.VM, Verb.DELETE, vm.name, message, vm.zone),), rule=LoopRule.VM_OPERATION
        )
    given_up = give_up_start(world, record, CREATE_TIMEOUT)
    if given_up is not None:
        return Decision((given_up,), rule=LoopRule.VM_OPERATION)
    return Decision(wait=Wait(f"VM: {vm.state.value}"), wake_in=5.0, rule=LoopRule.VM_OPERATION)


def vm_doubts(observed: Observed[Vm]) -> tuple[set[FirstSeen], set[FirstSeen]]:
    """
    Return the doubtful states that an observation of the VM shows, and those it leaves open.

    A VM counts as one that has run in every state but those before its first start.
    """
    if isinstance(observed, Absent):
        return {VM_ABSENT}, set()
    if not isinstance(observed, Present):
        return set(), {VM_ABSENT, VM_COMING, VM_HAS_RUN, VM_RUNNING}
    if observed.value.state in COMING:
        return {VM_COMING}, {VM_HAS_RUN}
    return {VM_HAS_RUN} | ({VM_RUNNING} if observed.value.state is VmState.RUNNING else set()), set()


def give_up_start(world: World, record: Record, timeout: float) -> Change | None:
    """
    Return the deletion of a VM that was starting for *timeout* seconds and has never run, else None.

    The controller that requested it may have been killed before the operation was recorded.
    """
    vm = world.vm
    if not isinstance(vm, Present) or vm.value.state not in COMING or VM_HAS_RUN in record.first_seen:
        return None
    # A VM of the user has run before, whatever this record knows of it.
    if names.ADOPTED_LABEL in vm.value.labels or not lasted(record, world, VM_COMING, timeout):
        return None
    message = f"its creation has not ended in {timeout / 60:.0f} min"
    return Change(Kind.VM, Verb.DELETE, vm.value.name, message, vm.value.zone)
