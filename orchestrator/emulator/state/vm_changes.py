"""
Changes of a VM that need no restart: metadata, labels, tags, scheduling, maintenance.

A change takes effect at once and its operation ends later, so of two writers with the same
fingerprint the second gets 412.
"""

from collections.abc import Mapping
from typing import Any

from orchestrator.emulator.state import vm_rules
from orchestrator.emulator.state.compute import ComputeVms
from orchestrator.emulator.state.errors import compute_case
from orchestrator.emulator.state.instance import Instance
from orchestrator.emulator.state.kernel import Kernel, Place
from orchestrator.emulator.state.names import fingerprint
from orchestrator.emulator.state.operations import Operation

_FIXED = ("provisioningModel", "preemptible")
_MAINTENANCE = {True: "TERMINATE_ON_HOST_MAINTENANCE", False: "MIGRATE_ON_HOST_MAINTENANCE"}


class VmChanges:
    """Change VMs; each verb checks the fingerprint and returns its operation."""

    def __init__(self, kernel: Kernel, vms: ComputeVms) -> None:
        self._kernel, self._vms = kernel, vms
        kernel.handlers["vm.maintained"] = self._maintained

    def set_metadata(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """Replace the metadata; errors: ApiError 400, 404, 412."""
        instance = self._vms.get(zone, name)
        self._check(instance, instance.metadata, body.get("fingerprint", ""), "metadata")
        items = vm_rules.metadata(body)
        operation = self._vms.note_change(instance, "setMetadata")
        if operation.planned is None:
            instance.metadata = items
            self._refresh(instance)
        return operation

    def set_labels(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """Replace the labels; errors: ApiError 404, 412."""
        instance = self._vms.get(zone, name)
        self._check(instance, instance.labels, body.get("labelFingerprint", ""), "labels")
        operation = self._vms.note_change(instance, "setLabels")
        if operation.planned is None:
            instance.labels = dict(body.get("labels") or {})
        return operation

    def set_tags(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """Replace the network tags; errors: ApiError 404, 412."""
        instance = self._vms.get(zone, name)
        self._check(instance, list(instance.tags), body.get("fingerprint", ""), "tags")
        operation = self._vms.note_change(instance, "setTags")
        if operation.planned is None:
            instance.tags = tuple(body.get("items", ()))
            self._refresh(instance)
        return operation

    def set_scheduling(self, zone: str, name: str, body: Mapping[str, Any]) -> Operation:
        """
        Replace the scheduling and plan the end of the run time anew; errors: ApiError 400, 404.

        A VM stays spot or standard unless the body says otherwise.
        """
        instance = self._vms.get(zone, name)
        kept = {key: instance.scheduling[key] for key in _FIXED if key in instance.scheduling}
        rules = vm_rules.scheduling({"scheduling": {**kept, **body}})
        operation = self._vms.note_change(instance, "setScheduling")
        if operation.planned is None:
            instance.scheduling = rules
            self._vms.plan_deadline(instance)
        return operation

    def simulate_maintenance(self, zone: str, name: str) -> Operation:
        """Preempt a spot VM; show a maintenance event for the notice window on any other."""
        instance = self._vms.get(zone, name)
        operation = self._vms.note_change(instance, "compute.instances.simulateMaintenanceEvent")
        if operation.planned is None and instance.spot:
            self._vms.preempt(instance, notice=True)
        elif operation.planned is None:
            ends = instance.scheduling.get("onHostMaintenance") == "TERMINATE"
            self._kernel.show_maintenance(instance.machine_id, _MAINTENANCE[ends])
            self._kernel.schedule(self._kernel.settings.latency.notice, "vm.maintained", instance.machine_id)
        return operation

    def _check(self, instance: Instance, current: object, supplied: str, what: str) -> None:
        if supplied != fingerprint(current):
            place = Place(instance.zone, instance.name)
            error = compute_case("stale fingerprint").error(**self._kernel.values(place))
            error.message = error.message.replace("metadata", what)
            raise error

    def _refresh(self, instance: Instance) -> None:
        machine = self._kernel.state.machines.get(instance.machine_id)
        if machine:
            self._kernel.change_machine(machine, dict(instance.metadata), instance.tags)

    def _maintained(self, machine_id: str) -> None:
        self._kernel.show_maintenance(machine_id, "NONE")
