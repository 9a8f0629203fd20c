"""Implement what `tpuctl local` does to the cloud without its clients: preempt, kill, odd states."""

import re
from collections.abc import Iterable
from typing import Protocol, TypeVar

from orchestrator.emulator.state.kernel import Kernel
from orchestrator.emulator.state.tables import zone_types
from orchestrator.emulator.state.tpu.nodes import TpuNodes
from orchestrator.emulator.state.tpu.queued_transitions import INTERNAL, QueuedTransitions
from orchestrator.emulator.state.values.faults import FaultKind
from orchestrator.emulator.state.values.instance import Instance, Status
from orchestrator.emulator.state.values.node import DEAD, Health, Node, NodeState
from orchestrator.emulator.state.values.queued import WAITING, Initiator, QueuedState
from orchestrator.emulator.state.vm.vms import ComputeVms
from orchestrator.errors import LocalCloudError

_ODD_STATES = {state.name: state for state in NodeState}
_GONE_OR_GOING = DEAD | {NodeState.DELETING}
_VM_UP = frozenset({Status.PROVISIONING, Status.STAGING, Status.RUNNING})
S = QueuedState
_UNDER_WAY = WAITING | {S.PROVISIONING, S.ACTIVE}
_FROM = {
    S.ACCEPTED: _UNDER_WAY,
    S.WAITING_FOR_RESOURCES: _UNDER_WAY,
    S.PROVISIONING: WAITING,
    S.SUSPENDING: frozenset({S.PROVISIONING, S.ACTIVE}),
    S.FAILED: _UNDER_WAY,
}


class Named(Protocol):
    """Anything with a zone and a name."""

    zone: str
    name: str


N = TypeVar("N", bound=Named)


def the_one(known: Iterable[N], name: str, kind: str) -> N:
    """Return the only one of *known* with the name *name*. Raise LocalCloudError for none or several."""
    zone, _, short = name.rpartition("/")
    there = list(known)
    found = [item for item in there if item.name == short and zone in ("", item.zone)]
    if len(found) != 1:
        names = ", ".join(f"{item.zone}/{item.name}" for item in found or there)
        message = f"no such {kind}" if not found else "more than one has this name"
        raise refused(f"{name}: {message}", f"there are: {names or 'none'}")
    return found[0]


def refused(message: str, hint: str) -> LocalCloudError:
    """Return the error of a request that changed nothing."""
    return LocalCloudError(message, changed="nothing was changed", hint=hint)


class Controls:
    """Finds resources by name (`name`, or `zone/name` if two zones have it) and disturbs them."""

    def __init__(self, kernel: Kernel, tpu: TpuNodes, vms: ComputeVms) -> None:
        self._kernel, self._tpu, self._vms = kernel, tpu, vms

    def preempt(self, name: str, *, notice: bool) -> None:
        """Preempt a spot node or VM. Raise LocalCloudError if it cannot be preempted."""
        found = self._find(name)
        if not found.spot:
            raise refused(f"preempt {name}: it is neither spot nor preemptible", "create it as spot")
        if isinstance(found, Node):
            if found.state in _GONE_OR_GOING:
                raise refused(f"preempt {name}: it is {found.state.name}", "check its state first")
            self._tpu.preempt(found, notice=notice)
        elif found.status in _VM_UP:
            self._vms.transitions.preempt(found, notice=notice)
        else:
            raise refused(f"preempt {name}: it is {found.status.value}", "check its status first")

    def kill_worker(self, name: str, index: int) -> None:
        """Kill one machine of a slice while its node stays READY. Raise LocalCloudError."""
        node = self._find_node(name)
        live = [w for w in node.workers if w.id in self._kernel.state.machines]
        if not 0 <= index < len(live):
            raise refused(f"kill worker {index} of {name}: it has {len(live)} machines", "")
        self._kernel.halt(live[index].id)
        self._kernel.touch()

    def set_node_state(self, name: str, state: str) -> None:
        """
        Put a node into the given *state*. Raise LocalCloudError.

        *state* is `vanish`, `UNHEALTHY_MAINTENANCE` (READY with that health), `maintenance` (announced for an
        hour from now; `maintenance:SECONDS`), or a state of tpu v2. PREEMPTED and TERMINATED take the
        machines; other states leave them running.
        """
        node = self._find_node(name)
        if state == "vanish":
            self._tpu.vanish(node)
        elif state.partition(":")[0] == "maintenance":
            self._tpu.announce(node, _seconds(state))
        elif state in Health.__members__:
            node.health = Health[state]
            node.health_description = "The TPU had a maintenance event." if "MAINTENANCE" in state else ""
        elif state in ("PREEMPTED", "TERMINATED"):
            self._tpu.end(node, NodeState[state])
        elif state in _ODD_STATES:
            node.enter(_ODD_STATES[state])
        else:
            known = ", ".join(["vanish", "maintenance", *Health.__members__, *_ODD_STATES])
            raise refused(f"state {state!r}: unknown", f"known: {known}")
        self._kernel.touch()

    def set_zone_state(self, zone: str, state: str) -> None:
        """
        Make a zone `unreachable` for the TPU API, or `reachable` again. Raise LocalCloudError.

        Meanwhile lists name it in `unreachable`, and other calls for it answer 503, as seen for one zone
        (docs/facts.md 1.3); its machines keep running. What else Google does is not known.
        """
        if zone not in zone_types():
            raise refused(f"zone {zone}: no TPUs there", f"known: {', '.join(sorted(zone_types()))}")
        if state not in ("reachable", "unreachable"):
            raise refused(f"zone {zone}: state {state!r} is unknown", "known: reachable, unreachable")
        change = self._kernel.state.unreachable
        (change.add if state == "unreachable" else change.discard)(zone)
        self._kernel.touch()

    def _find_node(self, name: str) -> Node:
        found = self._find(name)
        if not isinstance(found, Node):
            raise refused(f"{name}: it is a VM, not a TPU node", "name a TPU node")
        return found

    def _find(self, name: str) -> Node | Instance:
        state = self._kernel.state
        known: list[Node | Instance] = [*state.nodes.values(), *state.instances.values()]
        return the_one(known, name, "TPU or VM")


def _seconds(state: str) -> float:
    """Return the seconds in `maintenance:SECONDS`, by default an hour."""
    text = state.partition(":")[2] or "3600"
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise refused(f"state {state!r}: not a number of seconds", "write for example maintenance:600")
    return float(text)


class QueuedControls:
    """Finds queued resources by name (`name`, or `zone/name` if two zones have it) and moves them."""

    def __init__(self, kernel: Kernel, transitions: QueuedTransitions) -> None:
        self._kernel, self._transitions = kernel, transitions

    def set_state(self, name: str, state: str) -> None:
        """
        Move a queued resource to *state*. Raise LocalCloudError.

        *state* is WAITING_FOR_RESOURCES or ACCEPTED (its nodes are removed), PROVISIONING (it is chosen now,
        and a pending `no-capacity` ends), SUSPENDING (by the service; SUSPENDED follows) or FAILED.
        """
        found = the_one(self._kernel.state.queued.values(), name, "queued resource")
        wanted = {each.name: each for each in _FROM}.get(state)
        if wanted is None:
            known = ", ".join(each.name for each in _FROM)
            raise refused(f"state {state!r}: unknown for a queued resource", f"known: {known}")
        if found.state not in _FROM[wanted]:
            message = f"{name} cannot become {state} while it is {found.state.name}"
            raise refused(message, "check its state first")
        if wanted is S.PROVISIONING:
            if found.fate and found.fate.kind is FaultKind.NO_CAPACITY:
                found.fate = None
            self._transitions.choose(found)
        elif wanted is S.SUSPENDING:
            self._transitions.suspend(found, Initiator.SERVICE)
        elif wanted is S.FAILED:
            self._transitions.fail(found, INTERNAL)
        else:
            self._transitions.wait(found, wanted)
