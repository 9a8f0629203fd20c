"""A VM that never comes to run: nothing is lost with its disk, unless it has run before."""

from orchestrator.domain.first_seen import VM_ABSENT, VM_COMING, VM_HAS_RUN, FirstSeen
from orchestrator.domain.observation import Absent, Present, Sight, Vm, VmState, World
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import Record, lasted

COMING = frozenset({VmState.PENDING, VmState.PROVISIONING, VmState.STAGING})


def vm_doubts(sight: Sight[Vm]) -> tuple[set[FirstSeen], set[FirstSeen]]:
    """
    Return the doubtful states that a look at the VM shows, and those of which it tells nothing.

    A VM counts as one that has run in every state but those before its first start.
    """
    if isinstance(sight, Absent):
        return {VM_ABSENT}, set()
    if not isinstance(sight, Present):
        return set(), {VM_ABSENT, VM_COMING, VM_HAS_RUN}
    if sight.value.state in COMING:
        return {VM_COMING}, {VM_HAS_RUN}
    return {VM_HAS_RUN}, set()


def give_up_start(world: World, record: Record, patience: float) -> Change | None:
    """
    Return the deletion of a VM that was on its way for *patience* seconds and has never run.

    Whoever asked for it may have been killed before the operation was written down.
    """
    vm = world.vm
    if not isinstance(vm, Present) or vm.value.state not in COMING or VM_HAS_RUN in record.first_seen:
        return None
    if not lasted(record, world, VM_COMING, patience):
        return None
    why = f"its creation has not ended in {patience / 60:.0f} min"
    return Change(Kind.VM, Verb.DELETE, vm.value.name, why, vm.value.zone)
