"""What `tpuctl local` does to the cloud behind the callers' backs: preempt, kill, odd states."""

import re

from orchestrator.emulator.state.compute import ComputeVms
from orchestrator.emulator.state.instance import Instance, Status
from orchestrator.emulator.state.kernel import Kernel
from orchestrator.emulator.state.named import refused, the_one
from orchestrator.emulator.state.node import DEAD, Health, Node, NodeState
from orchestrator.emulator.state.tables import zone_types
from orchestrator.emulator.state.tpu import TpuNodes

_ODD_STATES = {state.name: state for state in NodeState}
_GONE_OR_GOING = DEAD | {NodeState.DELETING}
_VM_UP = frozenset({Status.PROVISIONING, Status.STAGING, Status.RUNNING})


class Controls:
    """Find resources by name (`name`, or `zone/name` when two zones have it) and disturb them."""

    def __init__(self, kernel: Kernel, tpu: TpuNodes, vms: ComputeVms) -> None:
        self._kernel, self._tpu, self._vms = kernel, tpu, vms

    def preempt(self, name: str, *, notice: bool) -> None:
        """Preempt a spot node or VM; errors: LocalCloudError when it cannot be preempted."""
        found = self._find(name)
        if not found.spot:
            raise refused(f"preempt {name}: it is neither spot nor preemptible", "create it as spot")
        if isinstance(found, Node):
            if found.state in _GONE_OR_GOING:
                raise refused(f"preempt {name}: it is {found.state.name}", "look at its state first")
            self._tpu.preempt(found, notice=notice)
        elif found.status in _VM_UP:
            self._vms.preempt(found, notice=notice)
        else:
            raise refused(f"preempt {name}: it is {found.status.value}", "look at its status first")

    def kill_worker(self, name: str, index: int) -> None:
        """Kill one machine of a slice while its node stays READY; errors: LocalCloudError."""
        node = self._find_node(name)
        live = [w for w in node.workers if w.id in self._kernel.state.machines]
        if not 0 <= index < len(live):
            raise refused(f"kill worker {index} of {name}: it has {len(live)} machines", "")
        self._kernel.halt(live[index].id)
        self._kernel.touch()

    def set_node_state(self, name: str, state: str) -> None:
        """
        Put a node into an odd state; errors: LocalCloudError.

        *state* is `vanish`, `UNHEALTHY_MAINTENANCE` (READY with that health), `maintenance` (told to begin in
        an hour; `maintenance:SECONDS`), or a state of tpu v2. PREEMPTED and TERMINATED take the machines;
        other states leave them running.
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
        Let the TPU API reach a zone no more (`unreachable`), or again (`reachable`); errors: LocalCloudError.

        Meanwhile lists name it in `unreachable`, and its other calls answer 503, as those of one zone have
        (docs/facts.md 1.3); its machines run on. What Google does besides is not known.
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
        return the_one(known, name, "node or VM")


def _seconds(state: str) -> float:
    """Return the seconds that follow the colon of `maintenance:SECONDS`, an hour without any."""
    text = state.partition(":")[2] or "3600"
    if not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", text):
        raise refused(f"state {state!r}: not a number of seconds", "write for example maintenance:600")
    return float(text)
