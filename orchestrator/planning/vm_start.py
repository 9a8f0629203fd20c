"""A VM that never comes to run: nothing is lost with its disk, unless it has run before."""

from orchestrator.domain.observation import Absent, Present, Sight, Vm, VmState, World
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import Record, lasted

COMING = frozenset({VmState.PENDING, VmState.PROVISIONING, VmState.STAGING})
ABSENT, ON_ITS_WAY, HAS_RUN = "vm:absent", "vm:coming", "vm:has-run"
"""Keys of sightings."""


def vm_doubts(sight: Sight[Vm]) -> tuple[set[str], set[str]]:
    """
    Return the sightings that a look at the VM makes, and those that it leaves as they were.

    A VM counts as one that has run in every state but those before its first start.
    """
    if isinstance(sight, Absent):
        return {ABSENT}, set()
    if not isinstance(sight, Present):
        return set(), {ABSENT, ON_ITS_WAY, HAS_RUN}
    if sight.value.state in COMING:
        return {ON_ITS_WAY}, {HAS_RUN}
    return {HAS_RUN}, set()


def give_up_start(world: World, record: Record, patience: float) -> Change | None:
    """
    Return the deletion of a VM that was on its way for *patience* seconds and has never run.

    Whoever asked for it may have been killed before the operation was written down.
    """
    vm = world.vm
    if not isinstance(vm, Present) or vm.value.state not in COMING or HAS_RUN in record.sightings:
        return None
    if not lasted(record, world, ON_ITS_WAY, patience):
        return None
    why = f"its creation has not ended in {patience / 60:.0f} min"
    return Change(Kind.VM, Verb.DELETE, vm.value.name, why, vm.value.zone)
