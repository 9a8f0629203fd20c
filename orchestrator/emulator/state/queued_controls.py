"""What `tpuctl local` does to queued resources behind the callers' backs."""

from orchestrator.emulator.state.faults import FaultKind
from orchestrator.emulator.state.kernel import Kernel
from orchestrator.emulator.state.named import refused, the_one
from orchestrator.emulator.state.queued import WAITING, Initiator, QueuedState
from orchestrator.emulator.state.queued_life import INTERNAL, QueuedLife

S = QueuedState
_UNDER_WAY = WAITING | {S.PROVISIONING, S.ACTIVE}
_FROM = {
    S.ACCEPTED: _UNDER_WAY,
    S.WAITING_FOR_RESOURCES: _UNDER_WAY,
    S.PROVISIONING: WAITING,
    S.SUSPENDING: frozenset({S.PROVISIONING, S.ACTIVE}),
    S.FAILED: _UNDER_WAY,
}


class QueuedControls:
    """Find queued resources by name (`name`, or `zone/name` when two zones have it) and move them."""

    def __init__(self, kernel: Kernel, life: QueuedLife) -> None:
        self._kernel, self._life = kernel, life

    def set_state(self, name: str, state: str) -> None:
        """
        Move a queued resource; errors: LocalCloudError.

        *state* is WAITING_FOR_RESOURCES or ACCEPTED (its nodes are taken back), PROVISIONING (it is
        chosen now, and a `no-capacity` that it met is over), SUSPENDING (by the service; SUSPENDED
        follows) or FAILED.
        """
        found = the_one(self._kernel.state.queued.values(), name, "queued resource")
        wanted = {each.name: each for each in _FROM}.get(state)
        if wanted is None:
            known = ", ".join(each.name for each in _FROM)
            raise refused(f"state {state!r}: unknown for a queued resource", f"known: {known}")
        if found.state not in _FROM[wanted]:
            problem = f"{name} cannot become {state} while it is {found.state.name}"
            raise refused(problem, "look at its state first")
        if wanted is S.PROVISIONING:
            if found.fate and found.fate.kind is FaultKind.NO_CAPACITY:
                found.fate = None
            self._life.choose(found)
        elif wanted is S.SUSPENDING:
            self._life.suspend(found, Initiator.SERVICE)
        elif wanted is S.FAILED:
            self._life.fail(found, INTERNAL)
        else:
            self._life.wait(found, wanted)
