"""Combine the local cloud in one object: both services, faults, controls, machines and the bill."""

import io
import pickle
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from orchestrator.clock import Clock
from orchestrator.emulator.state.api_errors import OperationError, compute_case
from orchestrator.emulator.state.billing import BillLine, Usage, bill
from orchestrator.emulator.state.cloud_settings import LocalCloudSettings
from orchestrator.emulator.state.controls import Controls, QueuedControls
from orchestrator.emulator.state.kernel import AddressPool, Event, Kernel, MachineState, State
from orchestrator.emulator.state.network import Network
from orchestrator.emulator.state.tables import Accelerator, VmType
from orchestrator.emulator.state.tpu.nodes import TpuNodes
from orchestrator.emulator.state.tpu.queued_resources import TpuQueuedResources
from orchestrator.emulator.state.values.faults import FaultKind, FaultSpec, check, check_method
from orchestrator.emulator.state.values.instance import Attachment, Disk, Instance, Status
from orchestrator.emulator.state.values.machine import Machine, Machines
from orchestrator.emulator.state.values.node import Health, Node, NodeState
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.values.queued import Initiator, QueuedResource, QueuedState
from orchestrator.emulator.state.vm.vms import ComputeVms, VmChanges
from orchestrator.errors import LocalCloudError

_FORMAT = 1
_SAVED = {
    each.__name__: each
    for each in (
        State, Event, MachineState, AddressPool, Operation, Api, OperationError, Node, NodeState, Health,
        Accelerator, QueuedResource, QueuedState, Initiator, Instance, Status, Attachment, Disk, VmType, Machine,
        Usage, FaultSpec, FaultKind,
    )
}  # fmt: skip
"""The classes in a stored state."""
_EARLIER_EVENTS = {
    "queued.look": "queued.poll", "queued.left": "queued.node-ended", "queued.swept": "queued.nodes-deleted",
}  # fmt: skip
"""Planned events of a state that an earlier version has stored, and what they are called now."""
GuestAttributes = Mapping[tuple[str, str], str]


class LocalCloud:
    """
    One local cloud; its public methods are safe from any thread.

    The services `tpu`, `queued`, `compute`, `changes` and `network` require that the caller holds `lock`, as
    the HTTP layer does. `kernel` is what they share.
    """

    def __init__(self, clock: Clock, machines: Machines, settings: LocalCloudSettings) -> None:
        self.settings = settings
        self.clock = clock
        self.lock = threading.RLock()
        self.kernel = Kernel(clock, machines, settings)
        self.tpu = TpuNodes(self.kernel)
        self.queued = TpuQueuedResources(self.kernel, self.tpu)
        self.compute = ComputeVms(self.kernel)
        self.changes = VmChanges(self.kernel, self.compute)
        self.network = Network(self.kernel)
        self._controls = Controls(self.kernel, self.tpu, self.compute)
        self._queued_controls = QueuedControls(self.kernel, self.queued.transitions)

    @property
    def version(self) -> int:
        return self.kernel.state.version

    @property
    def calls(self) -> Counter[str]:
        return self.kernel.state.calls

    def tick(self) -> None:
        with self.lock:
            self.kernel.tick()

    def next_due(self) -> float | None:
        """Return when the next event is due in seconds since the epoch, None if there is none."""
        with self.lock:
            heap = self.kernel.state.heap
            return heap[0].due if heap else None

    def pause(self, seconds: float) -> None:
        """Wait without blocking other calls: release the lock (held once), wait, take it again and tick."""
        # Others must be able to end the wait. The lock is reentrant, so if it were held twice it would stay held.
        self.lock.release()
        try:
            self.clock.wait(seconds)
        finally:
            self.lock.acquire()
        self.kernel.tick()

    def snapshot(self) -> bytes:
        """Return the state for `restore`; machines themselves are not part of it."""
        with self.lock:
            # Pickle, because it keeps shared objects shared (an operation is in two tables); JSON would copy them.
            return pickle.dumps((_FORMAT, self.kernel.state))

    def restore(self, data: bytes) -> None:
        """
        Load the state of a snapshot; only of our own files, as pickle can execute code.

        No machine is booted: `machines()` and `machine_state()` say which should run. Raise LocalCloudError
        if the data is damaged or of another format.
        """
        try:
            number, state = _Reader(io.BytesIO(data)).load()
        except Exception as error:
            raise _unreadable(f"the saved state is damaged: {error}") from error
        if number != _FORMAT or not isinstance(state, State):
            raise _unreadable(f"the saved state has format {number}, not {_FORMAT}")
        # In place: the order of the heap is by time alone.
        state.heap[:] = [replace(one, kind=_EARLIER_EVENTS.get(one.kind, one.kind)) for one in state.heap]
        with self.lock:
            self.kernel.state = state

    def preempt(self, name: str, notice: bool = True) -> None:
        """Preempt a spot node or VM, with its notice or at once. Raise LocalCloudError."""
        with self._at_once():
            self._controls.preempt(name, notice=notice)

    def kill_worker(self, name: str, index: int) -> None:
        """Kill one machine of a slice while its node stays READY. Raise LocalCloudError."""
        with self._at_once():
            self._controls.kill_worker(name, index)

    def set_node_state(self, name: str, state: str) -> None:
        """Put a node into a state, see Controls.set_node_state. Raise LocalCloudError."""
        with self._at_once():
            self._controls.set_node_state(name, state)

    def set_zone_state(self, zone: str, state: str) -> None:
        """Make a zone unreachable or reachable, see Controls.set_zone_state. Raise LocalCloudError."""
        with self._at_once():
            self._controls.set_zone_state(zone, state)

    def set_queued_state(self, name: str, state: str) -> None:
        """Move a queued resource to a state, see QueuedControls.set_state. Raise LocalCloudError."""
        with self._at_once():
            self._queued_controls.set_state(name, state)

    @contextmanager
    def _at_once(self) -> Iterator[None]:
        """Hold the lock, and tick before and after the block, so that events due now happen."""
        with self.lock:
            self.kernel.tick()
            yield
            self.kernel.tick()

    def queued_resources(self) -> list[QueuedResource]:
        with self.lock:
            self.kernel.tick()
            return list(self.kernel.state.queued.values())

    def nodes(self) -> list[Node]:
        with self.lock:
            self.kernel.tick()
            return list(self.kernel.state.nodes.values())

    def vms(self) -> list[Instance]:
        with self.lock:
            self.kernel.tick()
            return list(self.kernel.state.instances.values())

    def fail_next(self, method: str, faults: Iterable[FaultSpec | str]) -> None:
        """
        Make the next calls of *method* meet *faults*, one each, in order.

        Strings are parsed by FaultSpec.parse. Raise LocalCloudError for an unknown method or fault; then
        none is added.
        """
        check_method(method)
        parsed = [FaultSpec.parse(method, f) if isinstance(f, str) else check(method, f) for f in faults]
        with self.lock:
            self.kernel.state.faults.setdefault(method, []).extend(parsed)
            self.kernel.touch()

    def unused_faults(self) -> list[tuple[str, FaultSpec]]:
        with self.lock:
            waiting = sorted(self.kernel.state.faults.items())
            return [(method, fault) for method, faults in waiting for fault in faults]

    def machine(self, machine_id: str) -> Machine | None:
        with self.lock:
            return self.kernel.state.machines.get(machine_id)

    def machines(self) -> list[Machine]:
        with self.lock:
            return list(self.kernel.state.machines.values())

    def machine_by_address(self, address: str) -> Machine | None:
        return next((m for m in self.machines() if m.address == address), None)

    def running_vm(self, project: str, zone: str, name: str) -> str | None:
        for machine in self.machines():
            if (machine.kind, machine.project, machine.zone, machine.name) == ("vm", project, zone, name):
                return machine.address if self.machine_state(machine.id).running else None
        return None

    def machine_state(self, machine_id: str) -> MachineState:
        """Return what the metadata server shows; a deleted machine counts as not running."""
        with self.lock:
            self.kernel.tick()
            return self.kernel.state.flags.get(machine_id, MachineState())

    def guest_attributes(self, machine_id: str) -> GuestAttributes:
        """Return (namespace, key) -> value. Raise ApiError 404 if there is no such machine."""
        with self.lock:
            found = self.kernel.state.guest.get(machine_id)
        if found is None:
            raise compute_case("no guest attributes").error(path="hostkeys/")
        return dict(found)

    def put_guest_attribute(self, machine_id: str, namespace: str, key: str, value: str) -> None:
        """Store a guest attribute that a machine has written. Raise ApiError 404 if there is no such machine."""
        self.guest_attributes(machine_id)
        with self.lock:
            self.kernel.state.guest[machine_id][namespace, key] = value
            self.kernel.touch()
            self.kernel.machines.changed(machine_id)

    def bill(self) -> list[BillLine]:
        with self.lock:
            self.kernel.tick()
            return bill(self.kernel.state.usage, self.kernel.state.time)


class _Reader(pickle.Unpickler):
    """Finds the classes of a state by name alone, so that a stored state stays readable when modules move."""

    def find_class(self, module: str, name: str) -> Any:
        return _SAVED[name] if name in _SAVED else super().find_class(module, name)


def _unreadable(message: str) -> LocalCloudError:
    return LocalCloudError(
        message, changed="the local cloud keeps the state it has", hint="run `tpuctl local reset`"
    )
