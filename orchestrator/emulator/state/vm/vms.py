"""
Implement Compute Engine v1's VMs, and changes of them that need no restart.

A change takes effect at once and its operation ends later, so of two writers with the same fingerprint the
second gets 412.
"""

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from orchestrator.emulator.state import api_errors, constraints, tables
from orchestrator.emulator.state.api_errors import compute_case
from orchestrator.emulator.state.identifiers import fingerprint
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.network import vm_interface
from orchestrator.emulator.state.values.instance import Action, Instance, Status
from orchestrator.emulator.state.values.machine import Machine
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.vm import vm_rules
from orchestrator.emulator.state.vm.vm_disks import VmDisks
from orchestrator.emulator.state.vm.vm_transitions import VmTransitions

S = Status
_FIXED = ("provisioningModel", "preemptible")
_MAINTENANCE = {True: "TERMINATE_ON_HOST_MAINTENANCE", False: "MIGRATE_ON_HOST_MAINTENANCE"}


class ComputeVms:
    """
    Inserts, starts, stops and deletes VMs; each verb returns its operation at once.

    Not known about the real API, assumed here: starting a running VM is an operation without effect; the end
    of the run time is an operation of the user "system" with the plain verb; a quota refusal is inside the
    operation.
    """

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self.disks = VmDisks(kernel)
        self.transitions = VmTransitions(kernel, self.disks)

    def in_zone(self, zone: str) -> list[Instance]:
        vm_rules.check_zone(self._kernel, zone)
        known = self._kernel.state.instances
        return [known[key] for key in sorted(known) if key[0] == zone]

    def get(self, zone: str, name: str) -> Instance:
        """Return a VM. Raise ApiError 404."""
        vm_rules.check_zone(self._kernel, zone)
        instance = self._kernel.state.instances.get((zone, name))
        if instance is None:
            raise compute_case("not found").error(**self._kernel.values(CallTarget(zone, name)))
        return instance

    def insert(self, zone: str, body: Mapping[str, Any]) -> Operation:
        """Start to create a VM from *body* (JSON of Instance). Raise ApiError."""
        kernel, target = self._kernel, CallTarget(zone, str(body.get("name", "")))
        vm_rules.check_zone(kernel, zone)
        vm_rules.check_name(kernel, target)
        instance = self._build(target, body)
        wanted = (body.get("networkInterfaces") or [{}])[0]
        instance.network, instance.subnetwork = vm_interface(
            kernel.settings.networks,
            tables.region_of(zone),
            str(wanted.get("network", "")),
            str(wanted.get("subnetwork", "")),
        )
        planned_disks = self.disks.plan(instance, body)
        image = next((disk.image for disk, tied in planned_disks if tied.boot), "")
        constraints.check_vm(kernel, target, body, image)
        instance.address = kernel.state.pool.take()
        self.disks.attach(instance, planned_disks)
        kernel.state.instances[zone, target.name] = instance
        kernel.add_machine(self._machine(instance))
        return self.transitions.start_up(instance, "insert", kernel.settings.latency.vm_create)

    def insert_several(self, zone: str, body: Mapping[str, Any]) -> Operation:
        """
        Start to create VMs from *body* (JSON of BulkInsertInstanceResource). Raise ApiError.

        One operation represents all of them and fails with the first failure; the other VMs stay (assumed).
        """
        kernel, properties = self._kernel, body.get("instanceProperties", {})
        vm_rules.check_zone(kernel, zone)
        names = vm_rules.names_of_several(kernel, zone, body)
        for name in names:
            vm_rules.check_name(kernel, CallTarget(zone, name))
        machine = str(properties.get("machineType", ""))
        kind = machine if "/" in machine else f"zones/{zone}/machineTypes/{machine}"
        made = [self.insert(zone, {**properties, "machineType": kind, "name": name}) for name in names]
        path, target = f"projects/{kernel.settings.project}/zones/{zone}", CallTarget(zone, names[0])
        operation = kernel.begin(
            Api.COMPUTE, f"zones/{zone}", "bulkInsert", path, kernel.numeric_id(), target=target
        )
        operation.planned = operation.planned or next((one.planned for one in made if one.planned), None)
        kernel.proceed(operation, kernel.settings.latency.vm_create, "vm.done")
        return operation

    def start(self, zone: str, name: str) -> Operation:
        """Start a stopped VM; for a VM that is still stopping the operation ends with an error."""
        instance = self.get(zone, name)
        if instance.status is S.TERMINATED:
            return self.transitions.start_up(instance, "start", self._kernel.settings.latency.vm_start)
        operation = self.transitions.begin(instance, "start")
        if instance.status is not S.RUNNING:
            operation.planned = self.transitions.not_ready(instance)
        self._kernel.proceed(operation, 0.0, "vm.done")
        return operation

    def stop(self, zone: str, name: str) -> Operation:
        """Start to stop a VM, with its shutdown scripts; no effect on a stopped one."""
        instance = self.get(zone, name)
        operation = self.transitions.begin(instance, "stop")
        if instance.status is S.TERMINATED or operation.planned:
            self._kernel.proceed(operation, 0.0, "vm.done")
        else:
            self.transitions.wind_down(
                instance, operation, self._kernel.settings.latency.vm_stop, Action.STOP
            )
        return operation

    def delete(self, zone: str, name: str) -> Operation:
        instance = self.get(zone, name)
        if instance.body.get("deletionProtection"):
            raise api_errors.invalid(f"The resource '{instance.path}' is protected against deletion.")
        operation = self.transitions.begin(instance, "delete")
        if operation.planned:
            self._kernel.proceed(operation, 0.0, "vm.done")
        else:
            self.transitions.wind_down(
                instance, operation, self._kernel.settings.latency.vm_delete, Action.DELETE
            )
        return operation

    def reset(self, zone: str, name: str) -> Operation:
        """Kill and boot a running VM at once, without its shutdown scripts."""
        instance = self.get(zone, name)
        operation = self.transitions.begin(instance, "reset")
        if instance.status is not S.RUNNING:
            operation.planned = self.transitions.not_ready(instance)
        self._kernel.proceed(operation, 0.0, "vm.reset", zone, name, instance.epoch)
        return operation

    def note_change(self, instance: Instance, verb: str) -> Operation:
        """Record the operation of a change that has already taken effect."""
        operation = self.transitions.begin(instance, verb)
        self._kernel.proceed(operation, self._kernel.settings.latency.vm_change, "vm.done")
        return operation

    def _build(self, target: CallTarget, body: Mapping[str, Any]) -> Instance:
        kernel = self._kernel
        account = (body.get("serviceAccounts") or [{}])[0]
        email = account.get("email", "")
        if account and email in ("", "default"):
            email = kernel.settings.default_service_account
        return Instance(
            kernel.settings.project,
            target.zone,
            target.name,
            kernel.numeric_id(),
            vm_rules.machine_type(target, str(body.get("machineType", ""))),
            "",
            copy.deepcopy(dict(body)),
            kernel.state.time,
            email,
            tuple(account.get("scopes", ())),
            vm_rules.scheduling(body),
            dict(body.get("labels") or {}),
            vm_rules.metadata(body.get("metadata") or {}),
            tuple((body.get("tags") or {}).get("items", ())),
        )

    def _machine(self, instance: Instance) -> Machine:
        settings = self._kernel.settings
        boot = next(a.disk for a in instance.disks if a.boot)
        return Machine(
            id=instance.machine_id,
            numeric_id=instance.numeric_id,
            name=instance.name,
            kind="vm",
            zone=instance.zone,
            project=settings.project,
            project_number=settings.project_number,
            address=instance.address,
            machine_type=instance.type.name,
            service_account=instance.service_account,
            scopes=instance.scopes,
            preemptible=instance.spot,
            attributes=dict(instance.metadata),
            tags=instance.tags,
            disk_bytes=self._kernel.state.disks[instance.zone, boot].size_gib << 30,
            private=not (instance.body.get("networkInterfaces") or [{}])[0].get("accessConfigs"),
        )


class VmChanges:
    """Changes VMs; each verb checks the fingerprint and returns its operation."""

    def __init__(self, kernel: Kernel, vms: ComputeVms) -> None:
        self._kernel, self._vms = kernel, vms
        kernel.handlers["vm.maintained"] = self._maintained

    def set_metadata(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """Replace the metadata. Raise ApiError 400, 404, 412."""
        instance = self._vms.get(zone, name)
        self._check(instance, instance.metadata, body.get("fingerprint", ""), "metadata")
        items = vm_rules.metadata(body)
        operation = self._vms.note_change(instance, "setMetadata")
        if operation.planned is None:
            instance.metadata = items
            self._refresh(instance)
        return operation

    def set_labels(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """Replace the labels. Raise ApiError 404, 412."""
        instance = self._vms.get(zone, name)
        self._check(instance, instance.labels, body.get("labelFingerprint", ""), "labels")
        operation = self._vms.note_change(instance, "setLabels")
        if operation.planned is None:
            instance.labels = dict(body.get("labels") or {})
        return operation

    def set_tags(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """Replace the network tags. Raise ApiError 404, 412."""
        instance = self._vms.get(zone, name)
        self._check(instance, list(instance.tags), body.get("fingerprint", ""), "tags")
        operation = self._vms.note_change(instance, "setTags")
        if operation.planned is None:
            instance.tags = tuple(body.get("items", ()))
            self._refresh(instance)
        return operation

    def set_service_account(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """
        Replace the account and the scopes of a stopped VM; without an email it has none. Raise ApiError 400, 404.

        Not known about the real API, assumed here: an unknown account is accepted.
        """
        instance = self._vms.get(zone, name)
        if instance.status is not S.TERMINATED:
            raise compute_case("service account of a VM that is not stopped").error()
        operation = self._vms.note_change(instance, "setServiceAccount")
        if operation.planned is None:
            email = body.get("email", "")
            default = self._kernel.settings.default_service_account
            instance.service_account = default if email == "default" else email
            instance.scopes = tuple(body.get("scopes", ())) if email else ()
            self._refresh(instance)
        return operation

    def set_scheduling(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """
        Replace the scheduling and plan the end of the run time again. Raise ApiError 400, 404.

        A VM stays spot or standard unless the body says otherwise.
        """
        instance = self._vms.get(zone, name)
        fixed = {key: instance.scheduling[key] for key in _FIXED if key in instance.scheduling}
        rules = vm_rules.scheduling({"scheduling": {**fixed, **body}})
        operation = self._vms.note_change(instance, "setScheduling")
        if operation.planned is None:
            instance.scheduling = rules
            self._vms.transitions.plan_deadline(instance)
        return operation

    def simulate_maintenance(self, zone: str, name: str) -> Operation:
        """Preempt a spot VM; show a maintenance event for the notice window on any other."""
        instance = self._vms.get(zone, name)
        operation = self._vms.note_change(instance, "compute.instances.simulateMaintenanceEvent")
        if operation.planned is None and instance.spot:
            self._vms.transitions.preempt(instance, notice=True)
        elif operation.planned is None:
            ends = instance.scheduling.get("onHostMaintenance") == "TERMINATE"
            self._kernel.show_maintenance(instance.machine_id, _MAINTENANCE[ends])
            self._kernel.schedule(self._kernel.settings.latency.notice, "vm.maintained", instance.machine_id)
        return operation

    def _check(self, instance: Instance, current: object, supplied: str, what: str) -> None:
        if supplied != fingerprint(current):
            target = CallTarget(instance.zone, instance.name)
            raise compute_case("stale fingerprint").error(**self._kernel.values(target, what=what))

    def _refresh(self, instance: Instance) -> None:
        machine = self._kernel.state.machines.get(instance.machine_id)
        if machine:
            self._kernel.change_machine(
                replace(
                    machine, attributes=dict(instance.metadata), tags=instance.tags,
                    service_account=instance.service_account, scopes=instance.scopes,
                )
            )  # fmt: skip

    def _maintained(self, machine_id: str) -> None:
        self._kernel.show_maintenance(machine_id, "NONE")
