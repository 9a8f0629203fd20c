"""Provide what both services share: time, events, identifiers, operations, faults, machines."""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from ipaddress import IPv4Address, IPv4Network
from random import Random
from typing import Any

from orchestrator.clock import Clock
from orchestrator.emulator.state.api_errors import ApiError, OperationError, cases, tpu_case
from orchestrator.emulator.state.billing import Usage, close
from orchestrator.emulator.state.cloud_settings import LocalCloudSettings
from orchestrator.emulator.state.values import methods
from orchestrator.emulator.state.values.faults import FaultKind, FaultSpec
from orchestrator.emulator.state.values.instance import Disk, Instance
from orchestrator.emulator.state.values.machine import Machine, Machines
from orchestrator.emulator.state.values.node import Node
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.values.queued import QueuedResource
from orchestrator.errors import LocalCloudError

# Values for the texts of injected errors that the call itself does not have.
_OF_FAULTS = {
    "quota": "TPUV5sLitepodServingPerProjectPerZoneForTPUAPI",
    "metric": "CPUS",
    "n": 0,
    "type": "v5litepod-8",
    "machine_type": "ct5lp-hightpu-1t",
    "path": "hostkeys/",
    "resource_kind": "bucket",
    "what": "metadata",
}


class AddressPool:
    """
    The addresses of the /16 at *base*, the longest unused first.

    An address is reused only when all others have been used. Raise LocalCloudError if *base* is not inside
    127.0.0.0/8, is 127.0.0.0/16, or if every address is taken.
    """

    def __init__(self, base: str) -> None:
        self._network = _network(base)
        self._fresh = 1
        self._free: list[str] = []

    def take(self) -> str:
        if self._fresh < self._network.num_addresses - 1:
            self._fresh += 1
            return str(self._network.network_address + self._fresh - 1)
        if not self._free:
            raise LocalCloudError(
                f"address pool {self._network}: every address is in use",
                changed="no machine was made",
                hint="delete machines, or choose another address base",
            )
        # The longest unused first, because clients remember host keys and connections by address.
        return self._free.pop(0)

    def release(self, address: str) -> None:
        self._free.append(address)


def _network(base: str) -> IPv4Network:
    network = IPv4Network(f"{IPv4Address(base)}/16", strict=False)
    if not network.is_loopback or network.network_address == IPv4Address("127.0.0.0"):
        raise LocalCloudError(
            f"address base {base}: not usable for machines",
            changed="the local cloud was not started",
            hint="give an address between 127.1.0.0 and 127.255.0.0",
        )
    return network


@dataclass(frozen=True)
class MachineState:
    """What the metadata server shows about the state of a machine."""

    preempted: bool = False
    maintenance_event: str = "NONE"
    running: bool = False


@dataclass(frozen=True, order=True)
class Event:
    """The event *kind* with *args*, planned for *due*; *order* sorts events of the same time."""

    due: float
    order: int
    kind: str = field(compare=False)
    args: tuple[Any, ...] = field(compare=False)


@dataclass
class State:
    """The state; *time* is the moment up to which events have happened."""

    time: float
    random: Random
    pool: AddressPool
    version: int = 0
    order: int = 0
    heap: list[Event] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    open_operations: dict[str, Operation] = field(default_factory=dict)
    nodes: dict[tuple[str, str], Node] = field(default_factory=dict)
    queued: dict[tuple[str, str], QueuedResource] = field(default_factory=dict)
    instances: dict[tuple[str, str], Instance] = field(default_factory=dict)
    disks: dict[tuple[str, str], Disk] = field(default_factory=dict)
    firewalls: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    flags: dict[str, MachineState] = field(default_factory=dict)
    guest: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)
    usage: list[Usage] = field(default_factory=list)
    faults: dict[str, list[FaultSpec]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    replays: dict[str, tuple[str, str]] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)

    def __setstate__(self, known: dict[str, Any]) -> None:
        self.__dict__.update(
            {"queued": {}, "unreachable": set(), **known}
        )  # states stored by earlier versions have none


@dataclass(frozen=True)
class CallTarget:
    """The zone and the name of the resource that a call is about, for the texts of errors."""

    zone: str = ""
    name: str = ""

    def values(self, settings: LocalCloudSettings) -> dict[str, object]:
        """Return the values for placeholders in error texts."""
        region = self.zone.rsplit("-", 1)[0]
        known = {"project": settings.project, "number": settings.project_number}
        return {**known, "zone": self.zone, "region": region, "name": self.name, "node": self.name}


class Kernel:
    """Keeps the state and advances time; the services register the handlers of their events."""

    def __init__(self, clock: Clock, machines: Machines, settings: LocalCloudSettings) -> None:
        self.clock, self.machines, self.settings = clock, machines, settings
        # Repeatable on purpose; nothing secret comes from this generator.
        generator = Random(settings.seed)  # noqa: S311
        self.state = State(clock.now(), generator, AddressPool(settings.address_base))
        # Event names are stored in states on disk; these three only end their operation.
        done = ("vm.done", "firewall.done", "node.delete-dropped")
        self.handlers: dict[str, Callable[..., None]] = dict.fromkeys(done, self._done)
        self.armed: FaultSpec | None = None

    def tick(self) -> None:
        """Run every event that is due by now, in order."""
        now = self.clock.now()
        while self.state.heap and self.state.heap[0].due <= now:
            event = heapq.heappop(self.state.heap)
            # An event plans from its own time, not from that of a late tick, so delays do not add up.
            self.state.time = max(self.state.time, event.due)
            self.handlers[event.kind](*event.args)
            self.touch()
        self.state.time = max(self.state.time, now)

    def schedule(self, delay: float, kind: str, *args: Any) -> None:
        """Plan the event *kind* for *delay* seconds from now."""
        # Events of the same time happen in the order in which they were planned.
        self.state.order += 1
        heapq.heappush(self.state.heap, Event(self.state.time + delay, self.state.order, kind, args))
        self.touch()

    def touch(self) -> None:
        """Record that the state has changed."""
        self.state.version += 1

    def numeric_id(self) -> int:
        return self.state.random.randrange(10**18, 9 * 10**18)

    def hex(self, digits: int) -> str:
        return f"{self.state.random.getrandbits(4 * digits):0{digits}x}"

    def values(self, target: CallTarget, **more: object) -> dict[str, object]:
        """Return the values for placeholders in error texts about *target*."""
        return {"hex16": self.hex(16), "hex": self.hex(16), **target.values(self.settings), **more}

    def admit(self, method: str, target: CallTarget) -> FaultSpec | None:
        """
        Count the call, check API and permission, and return the fault that applies to it.

        Raise ApiError if the API is off, the permission is denied, or the fault is an error.
        """
        self.state.calls[method] += 1
        table = methods.error_table_of(method)
        service = f"{method.split('.', maxsplit=1)[0]}.googleapis.com"
        if service in self.settings.disabled_apis:
            case = cases().get((table, "api disabled"))
            raise case.error(**self._call_values(method, target)) if case else self._closed(service)
        if methods.permission_of(method) in self.settings.denied_permissions:
            raise self._denied(table, self._call_values(method, target))
        if (
            target.zone in self.state.unreachable
            and method.startswith("tpu.")
            and method not in methods.PARTIAL
        ):
            raise tpu_case("transient").error()
        fault = self._next_fault(method)
        self.armed = fault
        if fault and fault.kind is FaultKind.CALL_ERROR:
            raise cases()[table, fault.case].error(**{**_OF_FAULTS, **self._call_values(method, target)})
        return fault

    def _closed(self, service: str) -> ApiError:
        """
        Return the refusal of a disabled API whose own text is not known, such as Cloud Storage's.

        It has the common JSON form, the reason, and no details.
        """
        project = self.settings.project
        return ApiError(
            403,
            "accessNotConfigured",
            f"{service} has not been used in project {project}, or it is disabled.",
        )

    def _call_values(self, method: str, target: CallTarget) -> dict[str, object]:
        """Return the values for placeholders in error texts about a call of *method*."""
        values = self.values(target, permission=methods.permission_of(method))
        collection = "projects/{project}/locations/{zone}" if target.zone else "projects/{project}"
        service = "tpu" if not method.startswith("secretmanager.") else "secretmanager"
        values["email"] = self.settings.user
        return {**values, "resource": f"//{service}.googleapis.com/" + collection.format(**values)}

    @property
    def partial(self) -> bool:
        """Return whether the list being answered must be incomplete."""
        return self.armed is not None and self.armed.kind is FaultKind.UNREACHABLE

    def _denied(self, table: str, values: dict[str, object]) -> ApiError:
        if table != "storage v1":
            return cases()[table, "permission denied"].error(**values)
        return cases()[table, "no access"].error(**{**_OF_FAULTS, **values})

    def _next_fault(self, method: str) -> FaultSpec | None:
        waiting = self.state.faults.get(method)
        if not waiting:
            return None
        self.touch()
        fault = waiting.pop(0)
        if not waiting:
            del self.state.faults[method]
        return fault

    def begin(
        self,
        api: Api,
        scope: str,
        verb: str,
        path: str,
        target_id: int,
        *,
        target: CallTarget,
        user: str = "",
    ) -> Operation:
        """Record a new operation; the fault in force plans its failure."""
        name = f"operation-{int(self.state.time * 1000)}-{self.hex(13)}-{self.hex(8)}-{self.hex(8)}"
        who = user or self.settings.user
        operation = Operation(
            name, self.numeric_id(), api, scope, verb, path, target_id, who, self.state.time
        )
        self.state.operations[name] = self.state.open_operations[name] = operation
        if self.armed and self.armed.kind is FaultKind.OPERATION_ERROR:
            table = "tpu v2" if api is Api.TPU else "compute v1"
            operation.planned = cases()[table, self.armed.case].operation_error(
                **_OF_FAULTS, **self.values(target)
            )
        self.touch()
        return operation

    def proceed(self, operation: Operation, delay: float, kind: str, *args: Any) -> None:
        """
        Plan the end of *operation*: event *kind* with the operation's name and *args*.

        A planned failure appears after the stockout latency; a stuck operation never ends.
        """
        # Nothing is scheduled, so only the end of its resource (CANCELLED, preempted) ends the operation.
        if self.armed and self.armed.kind is FaultKind.STUCK:
            return
        if self.armed and self.armed.kind is FaultKind.LATENCY:
            delay += self.armed.seconds
        wait = self.settings.latency.stockout if operation.planned else delay
        self.schedule(wait, kind, operation.name, *args)

    def finish(self, operation: Operation, error: OperationError | None = None, result: Any = None) -> None:
        """End *operation* unless it has ended."""
        if not operation.done:
            operation.ended, operation.error, operation.result = self.state.time, error, result
            del self.state.open_operations[operation.name]
            self.touch()

    def _done(self, operation_name: str) -> None:
        operation = self.state.operations[operation_name]
        self.finish(operation, operation.planned)

    def open_on(self, target_id: int) -> list[Operation]:
        return [op for op in self.state.open_operations.values() if op.target_id == target_id]

    def find_operation(self, api: Api, scope: str, name: str) -> Operation | None:
        found = self.state.operations.get(name)
        known = found and found.api is api and found.scope == scope and not found.forgotten
        return found if known else None

    def add_machine(self, machine: Machine) -> None:
        self.state.machines[machine.id] = machine
        self.state.flags[machine.id] = MachineState()
        self.state.guest[machine.id] = {}

    def change_machine(self, machine: Machine) -> None:
        """Keep the machine with what has changed of it, which its metadata server shows from now on."""
        self.state.machines[machine.id] = machine
        self.machines.changed(machine.id)

    def show_maintenance(self, machine_id: str, event: str) -> None:
        """Show a maintenance event to a machine, if it still exists."""
        if flags := self.state.flags.get(machine_id):
            self.state.flags[machine_id] = replace(flags, maintenance_event=event)
            self.touch()
            self.machines.changed(machine_id)

    def boot(self, machine_id: str) -> None:
        self.state.flags[machine_id] = MachineState(running=True)
        self.machines.boot(self.state.machines[machine_id])

    def warn(self, machine_id: str, *, preempted: bool) -> None:
        """Give a running machine its notice."""
        flags = self.state.flags[machine_id]
        if flags.running:
            self.state.flags[machine_id] = replace(flags, preempted=preempted or flags.preempted)
            self.machines.notice(machine_id)

    def halt(self, machine_id: str) -> None:
        self.state.flags[machine_id] = replace(self.state.flags[machine_id], running=False)
        self.machines.stop(machine_id)

    def remove_machine(self, machine_id: str) -> None:
        """Kill the machine, destroy its disk and free its address."""
        machine = self.state.machines.pop(machine_id, None)
        if machine:
            del self.state.flags[machine_id], self.state.guest[machine_id]
            # Safe although its processes have not ended yet, because this address is reused last.
            self.state.pool.release(machine.address)
            self.machines.remove(machine_id)

    def bill_from_now(self, usage: Usage) -> None:
        self.state.usage.append(usage)

    def bill_until_now(self, resource: str, kind: str, *, preempted: bool = False) -> None:
        """Close the open billing period of *resource*, if there is one."""
        close(self.state.usage, resource, kind, self.state.time, preempted)
