"""
Model the disks of VMs: a boot disk survives stops, and may be deleted with its VM.

Machines keep a disk in a folder of their own: a disk kept after its VM's deletion stays listed and billed, but its
content is lost.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.emulator.state import api_errors, tables
from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.billing import Usage, per_hour
from orchestrator.emulator.state.identifiers import is_rfc1035
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.tpu import node_disks
from orchestrator.emulator.state.values.instance import Attachment, Disk, Instance
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.vm import vm_rules

_DEFAULT_GIB = 10
Planned = list[tuple[Disk, Attachment]]


class VmDisks:
    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        kernel.handlers["disk.deleted"] = self._deleted

    def in_zone(self, zone: str) -> list[Disk]:
        vm_rules.check_zone(self._kernel, zone)
        known = self._kernel.state.disks
        return [known[key] for key in sorted(known) if key[0] == zone]

    def get(self, zone: str, name: str) -> Disk:
        """Return a disk. Raise ApiError 404."""
        vm_rules.check_zone(self._kernel, zone)
        disk = self._kernel.state.disks.get((zone, name))
        if disk is None:
            raise api_errors.missing(self.path(zone, name))
        return disk

    def path(self, zone: str, name: str) -> str:
        return f"projects/{self._kernel.settings.project}/zones/{zone}/disks/{name}"

    def users(self, disk: Disk) -> list[str]:
        """Return the users of a disk as paths from `projects/` on; how Google names a TPU there is not known."""
        project = self._kernel.settings.project
        vms = [f"projects/{project}/zones/{disk.zone}/instances/{disk.user}"] if disk.user else []
        return vms + [node.path for node, _ in node_disks.holders(self._kernel, disk.zone, disk.name)]

    def insert(self, zone: str, body: Mapping[str, Any]) -> Operation:
        """Create a disk from *body* (JSON of Disk), without an image. Raise ApiError."""
        kernel, target = self._kernel, CallTarget(zone, str(body.get("name", "")))
        vm_rules.check_zone(kernel, zone)
        if not is_rfc1035(target.name):
            raise api_errors.invalid(f"Invalid value for field 'resource.name': '{target.name}'.")
        path = self.path(zone, target.name)
        if (zone, target.name) in kernel.state.disks:
            raise ApiError(409, "alreadyExists", f"The resource '{path}' already exists")
        size, kind = str(body.get("sizeGb") or 500), str(body.get("type") or "pd-standard")
        if not size.isdigit():
            raise api_errors.invalid(f"Invalid value for field 'resource.sizeGb': '{size}'.")
        labels = dict(body.get("labels") or {})
        kind = kind.rpartition("/")[2]
        made = Disk(
            zone, target.name, kernel.numeric_id(), int(size), kind, "", kernel.state.time, labels=labels
        )
        operation = kernel.begin(Api.COMPUTE, f"zones/{zone}", "insert", path, made.numeric_id, target=target)
        if operation.planned is None:
            self._create(made)
        kernel.proceed(operation, kernel.settings.latency.vm_change, "vm.done")
        return operation

    def delete(self, zone: str, name: str) -> Operation:
        """Start to delete a disk. Raise ApiError 400 while a VM uses it."""
        kernel, disk = self._kernel, self.get(zone, name)
        path = self.path(zone, name)
        for user in self.users(disk)[:1]:
            text = f"The disk resource '{path}' is already being used by '{user}'"
            raise ApiError(400, "resourceInUseByAnotherResource", text)
        operation = kernel.begin(
            Api.COMPUTE, f"zones/{zone}", "delete", path, disk.numeric_id, target=CallTarget(zone, name)
        )
        kernel.proceed(operation, kernel.settings.latency.vm_change, "disk.deleted", zone, name)
        return operation

    def plan(self, instance: Instance, body: Mapping[str, Any]) -> Planned:
        """Return the disks that *body* asks for, without changing anything. Raise ApiError."""
        wanted = body.get("disks") or []
        if not wanted:
            raise api_errors.invalid("Invalid value for field 'resource.disks': at least one disk is needed.")
        planned = [self._plan_one(instance, disk, index) for index, disk in enumerate(wanted)]
        names = [disk.name for disk, _ in planned]
        if len(set(names)) != len(names) or not planned[0][1].boot:
            raise api_errors.invalid(
                "Invalid value for field 'resource.disks': names must differ, the first boots."
            )
        return planned

    def attach(self, instance: Instance, planned: Planned) -> None:
        """Create the planned disks that do not exist, and attach all to the VM."""
        for disk, _ in planned:
            disk.user = instance.name
            if (disk.zone, disk.name) not in self._kernel.state.disks:
                self._create(disk)
        instance.disks = tuple(attachment for _, attachment in planned)

    def release(self, instance: Instance) -> None:
        """Detach the disks of a VM that is deleted; delete those with auto-delete."""
        for attachment in instance.disks:
            if attachment.auto_delete:
                self._destroy(instance.zone, attachment.disk)
            else:
                self._kernel.state.disks[instance.zone, attachment.disk].user = ""

    def _plan_one(self, instance: Instance, wanted: Mapping[str, Any], index: int) -> tuple[Disk, Attachment]:
        params = wanted.get("initializeParams") or {}
        boot = bool(wanted.get("boot", index == 0))
        suffix = "" if index == 0 else f"-{index}"
        source = wanted.get("source", "")
        name = source.rsplit("/", 1)[-1] or params.get("diskName") or f"{instance.name}{suffix}"
        attachment = Attachment(name, boot, bool(wanted.get("autoDelete")), wanted.get("deviceName") or name)
        if source:
            disk = self.get(instance.zone, name)
            if disk.user:
                text = (
                    f"The disk resource '{self.path(disk.zone, name)}' is already being used by '{disk.user}'"
                )
                raise ApiError(400, "resourceInUseByAnotherResource", text)
            return disk, attachment
        if (instance.zone, name) in self._kernel.state.disks:
            text = f"The resource '{self.path(instance.zone, name)}' already exists"
            raise ApiError(409, "alreadyExists", text)
        fresh = Disk(
            instance.zone,
            name,
            self._kernel.numeric_id(),
            int(str(params.get("diskSizeGb") or wanted.get("diskSizeGb") or _DEFAULT_GIB)),
            str(params.get("diskType") or "pd-standard").rsplit("/", 1)[-1],
            vm_rules.check_image(wanted) if boot else "",
            self._kernel.state.time,
            labels=dict(params.get("labels") or {}),
        )
        return fresh, attachment

    def _create(self, disk: Disk) -> None:
        kernel = self._kernel
        kernel.state.disks[disk.zone, disk.name] = disk
        price = per_hour(tables.disk_price(disk.type, tables.region_of(disk.zone)), disk.size_gib)
        path = self.path(disk.zone, disk.name)
        kernel.bill_from_now(Usage(path, "disk", disk.zone, disk.type, price, False, kernel.state.time))

    def _destroy(self, zone: str, name: str) -> None:
        self._kernel.state.disks.pop((zone, name), None)
        self._kernel.bill_until_now(self.path(zone, name), "disk")

    def _deleted(self, operation_name: str, zone: str, name: str) -> None:
        operation = self._kernel.state.operations[operation_name]
        if operation.planned is None:
            self._destroy(zone, name)
        self._kernel.finish(operation, operation.planned)
