"""Calls on the operations of Compute Engine: by zone, by region, global."""

from collections.abc import Sequence
from typing import Any

from orchestrator.emulator.http.compute_lists import aggregated, listed
from orchestrator.emulator.http.compute_shapes import operation_json
from orchestrator.emulator.http.dispatch import Call
from orchestrator.emulator.http.router import Response
from orchestrator.emulator.state import vm_rules
from orchestrator.emulator.state.operations import Api, Operation
from orchestrator.emulator.state.world import LocalCloud

_LONGEST_WAIT = 120.0
_STEP = 1.0


class OperationRequests:
    """Answer get, list and wait in each scope."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud

    def get(self, call: Call) -> Response:
        """Answer get."""
        return Response.of(self._shown(self._find(_scope(call.zone, call.region), call.name)))

    def list(self, call: Call) -> Response:
        """Answer list."""
        scope = _scope(call.zone, call.region)
        if call.zone:
            vm_rules.check_zone(self._cloud.kernel, call.zone)
        path = f"projects/{self._cloud.settings.project}/{scope}/operations"
        return listed(
            call.request, "operation", path, [self._shown(op) for op in self._all() if op.scope == scope]
        )

    def everywhere(self, call: Call) -> Response:
        """Answer aggregatedList."""
        scopes: dict[str, list[dict[str, Any]]] = {}
        for operation in self._all():
            scopes.setdefault(operation.scope, []).append(self._shown(operation))
        path = f"projects/{self._cloud.settings.project}/aggregated/operations"
        return aggregated(call.request, "operations", path, dict(scopes))

    def wait(self, call: Call) -> Response:
        """Answer wait: return when the operation is done, or after two minutes in whatever state."""
        found = self._find(_scope(call.zone, call.region), call.name)
        clock, cloud = self._cloud.clock, self._cloud
        ends = clock.now() + _LONGEST_WAIT
        while not found.done and clock.now() < ends:
            due = cloud.next_due()
            until = ends if due is None else min(due, ends)
            cloud.pause(min(_STEP, max(0.0, until - clock.now())))
        return Response.of(self._shown(found))

    def _all(self) -> Sequence[Operation]:
        known = self._cloud.kernel.state.operations.values()
        return [op for op in known if op.api is Api.COMPUTE]

    def _find(self, scope: str, name: str) -> Operation:
        found = self._cloud.kernel.find_operation(Api.COMPUTE, scope, name)
        by_id = [op for op in self._all() if str(op.numeric_id) == name and op.scope == scope]
        if found is None and not by_id:
            raise vm_rules.missing(f"projects/{self._cloud.settings.project}/{scope}/operations/{name}")
        return found or by_id[0]

    def _shown(self, operation: Operation) -> dict[str, Any]:
        return operation_json(self._cloud.settings.project, operation)


def _scope(zone: str, region: str) -> str:
    if zone:
        return f"zones/{zone}"
    return f"regions/{region}" if region else "global"
