"""Implement Cloud TPU v2's calls on queued resources."""

from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.emulator.state.api_errors import ApiError, tpu_case
from orchestrator.emulator.state.kernel import CallTarget, Kernel
from orchestrator.emulator.state.replays import once
from orchestrator.emulator.state.tpu import node_rules, queued_rules
from orchestrator.emulator.state.tpu.nodes import TpuNodes
from orchestrator.emulator.state.tpu.queued_transitions import QueuedTransitions
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.values.queued import QueuedResource, QueuedState


class TpuQueuedResources:
    """
    Creates, reads, resets and deletes queued resources; each verb returns its operation at once.

    Not known about the real API, chosen here: a refused verb is 400 with the text seen for node updates, a
    second deletion is 409 ABORTED, and a creation whose operation fails leaves a FAILED queued resource.
    """

    def __init__(self, kernel: Kernel, nodes: TpuNodes) -> None:
        self._kernel = kernel
        self.transitions = QueuedTransitions(kernel, nodes)

    def listed(self, zone: str) -> tuple[list[QueuedResource], list[str]]:
        """
        Return those of *zone* (`-`: all zones) sorted by zone and name, and the zones not reached.

        Those that are not visible yet are left out.
        """
        zones, silent = node_rules.listed_zones(self._kernel, zone)
        known = self._kernel.state.queued
        return [known[key] for key in sorted(known) if key[0] in zones and self._shown(known[key])], silent

    def get(self, zone: str, name: str) -> QueuedResource:
        """Return a queued resource. Raise ApiError 404, also for a moment after its creation."""
        node_rules.check_zone(self._kernel, zone)
        found = self._kernel.state.queued.get((zone, name))
        if found is None or not self._shown(found):
            project = self._kernel.settings.project
            raise node_rules.missing(f"projects/{project}/locations/{zone}/queuedResources/{name}")
        return found

    def create(self, zone: str, name: str, body: Mapping[str, Any], request_id: str = "") -> Operation:
        """Queue a request for nodes (JSON of QueuedResource). Raise ApiError, ValueError."""

        def act() -> Operation:
            found = queued_rules.checked(self._kernel, CallTarget(zone, name), body)
            self._kernel.state.queued[zone, name] = found
            operation = self._begin(found, "create")
            self.transitions.accept(found, operation)
            return operation

        return self._once(f"POST {zone}/queuedResources/{name}", request_id, body, act)

    def delete(self, zone: str, name: str, *, force: bool, request_id: str = "") -> Operation:
        """
        Start to delete a queued resource, with *force* its nodes too. Raise ApiError.

        Without *force* it must have no nodes: while it waits, or when it is FAILED or SUSPENDED.
        """

        def act() -> Operation:
            found = self.get(zone, name)
            self._check_deletable(found, force=force)
            earlier = self._kernel.open_on(found.numeric_id)
            operation = self._begin(found, "delete")
            if not operation.planned:
                found.enter(QueuedState.DELETING)
                self.transitions.leave(found)
                for other in earlier:
                    self._kernel.finish(other, node_rules.CANCELLED)
            latency = self._kernel.settings.latency
            delay = latency.node_delete if self.transitions.members(found) else latency.node_change
            self._kernel.proceed(operation, delay, "queued.deleted", *found.tag)
            return operation

        call = f"DELETE {zone}/queuedResources/{name}"
        return self._once(call, request_id, {"force": force}, act)

    def reset(self, zone: str, name: str) -> Operation:
        """Reboot the machines of an ACTIVE queued resource, with their disks. Raise ApiError."""
        found = self.get(zone, name)
        if found.state is not QueuedState.ACTIVE:
            raise queued_rules.refused(self._kernel, "reset", found)
        operation = self._begin(found, "reset")
        if not operation.planned:
            self.transitions.restart(found)
        delay = self._kernel.settings.latency.node_change
        self._kernel.proceed(operation, delay, "queued.restarted", *found.tag)
        return operation

    def _shown(self, queued: QueuedResource) -> bool:
        return queued.shown_from <= self._kernel.state.time

    def _begin(self, queued: QueuedResource, verb: str) -> Operation:
        target = CallTarget(queued.zone, queued.name)
        return self._kernel.begin(
            Api.TPU, f"zones/{queued.zone}", verb, queued.path, queued.numeric_id, target=target
        )

    def _check_deletable(self, queued: QueuedResource, *, force: bool) -> None:
        if queued.state is QueuedState.DELETING:
            target = CallTarget(queued.zone, queued.name)
            raise tpu_case("concurrent operation").error(**self._kernel.values(target))
        if not force and self.transitions.members(queued):
            raise queued_rules.refused(self._kernel, "delete without force", queued)

    def _once(
        self, call: str, request_id: str, body: Mapping[str, Any], act: Callable[[], Operation]
    ) -> Operation:
        return once(self._kernel, call, request_id, body, act, _invalid)


def _invalid(text: str) -> ApiError:
    return ApiError(400, "INVALID_ARGUMENT", text)
