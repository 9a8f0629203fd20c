"""VMs straight on the model."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from orchestrator.domain.all_zones import Everywhere, Survey
from orchestrator.domain.observation import Absent, Operation, OperationResult, Sight, Vm, VmState
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.ports import VmOrder
from orchestrator.emulator.state import operation as model
from orchestrator.emulator.state import tables, vm_rules
from orchestrator.emulator.state.api_errors import compute_case
from orchestrator.emulator.state.instance import Instance, Status
from orchestrator.emulator.state.kernel import Place
from orchestrator.emulator.state.operation import Api
from orchestrator.emulator.state.replays import once
from orchestrator.errors import NotFoundError, TpuctlError, TransientError
from orchestrator.google.bodies import as_json, instance_body
from orchestrator.google.error_mapping import judge
from orchestrator.google.observations import joined, listed, observed, surveyed
from orchestrator.google.operations import described, failed, polled
from orchestrator.google.refusal import of_compute
from orchestrator.google.request_ids import RequestIds
from tests.direct.door import Door
from tests.direct.nodes import public_keys
from tests.direct.times import millis

_PAGE = 500  # the largest page of the model's lists
_SHOWN_OUTSIDE = (Status.RUNNING, Status.STOPPING)  # statuses that show an outside address


class DirectVms:
    """Observe, create, start, stop and delete VMs."""

    def __init__(self, door: Door) -> None:
        self._door = door
        self._local = door.local
        self._ids = RequestIds()

    def observe(self, name: str, zone: str) -> Sight[Vm]:
        """Look at one VM; errors become Unknown."""
        what = f"look at VM '{name}' in {zone}"
        return observed(
            lambda: self._door.compute(
                what,
                "compute.instances.get",
                Place(zone, name),
                lambda: self._value(self._local.compute.get(zone, name)),
            )
        )

    def disk_users(self, name: str, zone: str) -> Sight[tuple[str, ...]]:
        """Look at a disk of any owner: Present with the names of who has it, Absent when there is none."""
        disks = self._local.compute.disks

        def act() -> tuple[str, ...]:
            return tuple(user.rpartition("/")[2] for user in disks.users(disks.get(zone, name)))

        what = f"look at disk '{name}' in {zone}"
        return observed(lambda: self._door.compute(what, "compute.disks.get", Place(zone, name), act))

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Sight[tuple[Vm, ...]]:
        """List the VMs that carry the label in *zones*, all pages."""
        asked = dict.fromkeys(zones)
        return joined([listed(partial(self._listed, zone, label, value)) for zone in asked])

    def everywhere(self, label: str, value: str) -> Survey[Vm]:
        """List the VMs that carry the label in all zones; places without an answer are named."""

        def act() -> Everywhere[Vm]:
            if self._local.kernel.partial:
                return Everywhere((), tables.zones())
            ours = (
                self._value(vm)
                for zone in tables.zones()
                for vm in self._local.compute.in_zone(zone)
                if vm.labels.get(label) == value
            )
            return Everywhere(tuple(sorted(ours, key=lambda vm: (vm.zone, vm.name))))

        what, method = "list VMs in all zones", "compute.instances.aggregatedList"
        return surveyed(lambda: self._door.compute(what, method, Place(), act))

    def create(self, order: VmOrder) -> Operation:
        """Ask for the VM; raise ConflictError when the name is taken."""
        body = instance_body(order)
        answer = self._insert(order, body)
        memory = answer.done and answer.error is None
        if memory and isinstance(self.observe(order.name, order.zone), Absent):
            self._ids.spend(answer.name)
            answer = self._insert(order, body)
        return _operation(answer, Verb.CREATE, order.name, order.zone)

    def start(self, name: str, zone: str) -> Operation:
        """Ask for the start of a stopped VM."""
        return self._verb(Verb.START, name, zone, lambda: self._local.compute.start(zone, name))

    def stop(self, name: str, zone: str) -> Operation | None:
        """Ask for the stop of a VM, keeping its disk; None when it is gone already."""
        try:
            return self._verb(Verb.STOP, name, zone, lambda: self._local.compute.stop(zone, name))
        except NotFoundError:
            return None

    def delete(self, name: str, zone: str) -> Operation | None:
        """Ask for deletion; None when it is gone already."""
        try:
            return self._verb(Verb.DELETE, name, zone, lambda: self._local.compute.delete(zone, name))
        except NotFoundError:
            return None

    def poll(self, operation: Operation) -> OperationResult:
        """Look at an operation once; a DONE operation that carries an error is a failure."""

        def look() -> OperationResult:
            found = self._door.compute(
                f"look at operation '{described(operation)}'",
                "compute.zoneOperations.get",
                Place(operation.zone, operation.id),
                lambda: self._found(operation.zone, operation.id),
            )
            error = _error_of(found, described(operation))
            return failed(operation, error) if error else OperationResult(operation, done=found.done)

        result = polled(operation, look)
        if result.done and result.retry is not None:
            self._ids.spend(operation.id)
        return result

    def host_keys(self, name: str, zone: str) -> tuple[str, ...]:
        """Return the machine's public host keys; raise NotFoundError while it has not published any."""
        what = f"read the host keys of VM '{name}' in {zone}"
        place = Place(zone, name)
        method = "compute.instances.getGuestAttributes"
        return self._door.compute(what, method, place, lambda: self._keys(zone, name))

    def _verb(self, verb: Verb, name: str, zone: str, act: Callable[[], model.Operation]) -> Operation:
        word = verb.word
        what, method = f"{word} VM '{name}' in {zone}", f"compute.instances.{word}"
        return _operation(self._door.compute(what, method, Place(zone, name), act), verb, name, zone)

    def _insert(self, order: VmOrder, body: dict[str, Any]) -> model.Operation:
        request_id, zone = self._ids.of(order.zone, body), order.zone
        sent = as_json(body, presence=True)
        call = f"POST /compute/v1/projects/{self._door.project}/zones/{zone}/instances"
        answer = self._door.compute(
            f"create VM '{order.name}' in {zone}",
            "compute.instances.insert",
            Place(zone, order.name),
            lambda: once(
                self._local.kernel,
                call,
                request_id,
                sent,
                lambda: self._local.compute.insert(zone, sent),
                vm_rules.invalid,
            ),
        )
        self._ids.used(request_id, answer.name)
        return answer

    def _listed(self, zone: str, label: str, value: str) -> list[Vm]:
        what, found, start = f"list VMs in {zone}", list[Vm](), 0
        while True:
            page, more = self._door.compute(
                what, "compute.instances.list", Place(zone), partial(self._page, zone, label, value, start)
            )
            found += page
            if not more:
                return found
            start += _PAGE

    def _page(self, zone: str, label: str, value: str, start: int) -> tuple[list[Vm], bool]:
        if self._local.kernel.partial:
            raise TransientError(f"list VMs in {zone}: incomplete answer (UNREACHABLE)")
        ours = [vm for vm in self._local.compute.in_zone(zone) if vm.labels.get(label) == value]
        return [self._value(vm) for vm in ours[start : start + _PAGE]], len(ours) > start + _PAGE

    def _value(self, vm: Instance) -> Vm:
        disks = self._local.kernel.state.disks
        return vm_of(vm, sum(disks[vm.zone, held.disk].size_gib for held in vm.disks if held.boot))

    def _found(self, zone: str, name: str) -> model.Operation:
        found = self._local.kernel.find_operation(Api.COMPUTE, f"zones/{zone}", name)
        if found is None:
            raise vm_rules.missing(f"projects/{self._door.project}/zones/{zone}/operations/{name}")
        return found

    def _keys(self, zone: str, name: str) -> tuple[str, ...]:
        vm = self._local.compute.get(zone, name)
        keys = public_keys(dict(self._local.guest_attributes(vm.machine_id)))
        if not keys:
            raise compute_case("no guest attributes").error()
        return keys


def vm_of(vm: Instance, disk_gb: int) -> Vm:
    """Return our value for a VM of the model."""
    interface = (vm.body.get("networkInterfaces") or [{}])[0]
    outside = bool(interface.get("accessConfigs")) and vm.status in _SHOWN_OUTSIDE
    return Vm(
        name=vm.name,
        zone=vm.zone,
        state=VmState(vm.status.value),
        internal_ip=vm.address,
        external_ip=vm.address if outside else "",
        labels=dict(vm.labels),
        spot=vm.spot,
        machine=vm.type.name,
        disk_gb=disk_gb,
    )


def _operation(started: model.Operation, verb: Verb, name: str, zone: str) -> Operation:
    at = millis(started.created)
    return Operation(started.name, Kind.VM, verb, name, zone, None, at)


def _error_of(found: model.Operation, what: str) -> TpuctlError | None:
    if found.error is None:
        return None
    return judge(of_compute(str(found.error.code), found.error.message, found.error.http_status), what)
