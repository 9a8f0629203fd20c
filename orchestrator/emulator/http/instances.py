"""Calls on VMs and their disks."""

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any

from orchestrator.emulator.http.compute_shapes import disk_json, instance_json, link, operation_json
from orchestrator.emulator.http.dispatch import Call, body_of
from orchestrator.emulator.http.metadata import items_json
from orchestrator.emulator.http.paging import aggregated, listed, out_of_reach
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.state import body_shapes, constraints, tables, vm_rules
from orchestrator.emulator.state.api_errors import compute_case
from orchestrator.emulator.state.body_shapes import Shape, check_shape
from orchestrator.emulator.state.instance import Disk, Instance
from orchestrator.emulator.state.operations import Operation
from orchestrator.emulator.state.world import LocalCloud

_SERIAL_RING = 1024 * 1024


def once(cloud: LocalCloud, request: Request, act: Callable[[], Operation]) -> Response:
    """Answer a mutating call; the same requestId gives the same operation again."""
    call, request_id = f"{request.method} {request.path}", request.query.get("requestId", "")
    operation = operation_once(cloud, call, request_id, body_of(request), act)
    return Response.of(operation_json(cloud.settings.project, operation))


class InstanceRequests:
    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud

    def insert(self, call: Call) -> Response:
        insert = self._cloud.compute.insert
        return once(
            self._cloud, call.request, lambda: insert(call.zone, body_of(call.request, body_shapes.INSTANCE))
        )

    def insert_several(self, call: Call) -> Response:
        """Answer instances.bulkInsert. Numbers of 64 bit may come as numbers or as text."""
        body = body_of(call.request)
        counts = {key: str(body[key]) for key in ("count", "minCount") if isinstance(body.get(key), int)}
        body = {**body, **counts}
        check_shape(body, dict(body_shapes.SEVERAL))
        return once(self._cloud, call.request, lambda: self._cloud.compute.insert_several(call.zone, body))

    def list(self, call: Call) -> Response:
        path = f"projects/{self._cloud.settings.project}/zones/{call.zone}/instances"
        if self._cloud.kernel.partial:
            warning = {"code": "UNREACHABLE", "message": f"'{call.zone}' did not answer."}
            return Response.of({"kind": "compute#instanceList", "id": path, "warning": warning})
        vms = [self._shown(vm) for vm in self._cloud.compute.in_zone(call.zone)]
        return listed(call.request, "instance", path, vms)

    def everywhere(self, call: Call) -> Response:
        path = f"projects/{self._cloud.settings.project}/aggregated/instances"
        if self._cloud.kernel.partial:
            return out_of_reach("instances", path, [f"zones/{zone}" for zone in tables.zones()])
        in_zone = self._cloud.compute.in_zone
        scopes = {f"zones/{z}": [self._shown(vm) for vm in in_zone(z)] for z in tables.zones()}
        return aggregated(call.request, "instances", path, dict(scopes))

    def get(self, call: Call) -> Response:
        """Answer instances.get; the path holds a name or a numeric id."""
        return Response.of(self._shown(self._cloud.compute.get(call.zone, self._name(call))))

    def changing(
        self, act: Callable[..., Operation], shape: Shape | None = None
    ) -> Callable[[Call], Response]:
        """Return what answers a call that changes one VM or disk; with a *shape*, its body is one argument more."""

        def answer(call: Call) -> Response:
            def changed() -> Operation:
                return act(call.zone, call.name, *([] if shape is None else [body_of(call.request, shape)]))

            return once(self._cloud, call.request, changed)

        return answer

    def serial(self, call: Call) -> Response:
        """
        Answer instances.getSerialPortOutput for port 1: the last MiB is kept.

        A negative start counts from the end.
        """
        vm = self._cloud.compute.get(call.zone, call.name)
        printed = self._cloud.kernel.hosts.serial(vm.machine_id)
        asked = int(call.request.query.get("start", "0"))
        oldest = max(0, len(printed) - _SERIAL_RING)
        start = max(oldest, len(printed) + asked if asked < 0 else asked)
        text = printed[start:].decode("utf-8", "replace")
        shown = {"kind": "compute#serialPortOutput", "selfLink": link(vm.path + "/serialPort")}
        return Response.of({**shown, "contents": text, "start": str(start), "next": str(len(printed))})

    def guest_attributes(self, call: Call) -> Response:
        """Answer instances.getGuestAttributes; nothing under the path is a 404."""
        vm = self._cloud.compute.get(call.zone, call.name)
        constraints.check_guest_attributes(self._cloud.kernel, compute=True)
        query = call.request.query.get("queryPath") or call.request.query.get("variableKey", "")
        items = items_json(self._cloud.guest_attributes(vm.machine_id), query)
        if not items:
            error = compute_case("no guest attributes").error()
            error.message = error.message.replace("hostkeys/", query)
            raise error
        shown = {"kind": "compute#guestAttributes", "selfLink": link(vm.path + "/guestAttributes/" + query)}
        return Response.of({**shown, "queryPath": query, "queryValue": {"items": items}})

    def disks(self, call: Call) -> Response:
        own = self._cloud.settings.project
        disks = [self._disk(disk) for disk in self._cloud.compute.disks.in_zone(call.zone)]
        return listed(call.request, "disk", f"projects/{own}/zones/{call.zone}/disks", disks)

    def disks_everywhere(self, call: Call) -> Response:
        own, in_zone = self._cloud.settings.project, self._cloud.compute.disks.in_zone
        scopes = {f"zones/{zone}": [self._disk(d) for d in in_zone(zone)] for zone in tables.zones()}
        return aggregated(call.request, "disks", f"projects/{own}/aggregated/disks", dict(scopes))

    def disk(self, call: Call) -> Response:
        return Response.of(self._disk(self._cloud.compute.disks.get(call.zone, call.name)))

    def insert_disk(self, call: Call) -> Response:
        body = body_of(call.request, body_shapes.DISK)
        return once(self._cloud, call.request, lambda: self._cloud.compute.disks.insert(call.zone, body))

    def _disk(self, disk: Disk) -> dict[str, Any]:
        return disk_json(self._cloud.settings.project, disk, self._cloud.compute.disks.users(disk))

    def _shown(self, instance: Instance) -> dict[str, Any]:
        return instance_json(instance, self._cloud.kernel.state.disks)

    def _name(self, call: Call) -> str:
        known = self._cloud.kernel.state.instances.values()
        by_id = [vm.name for vm in known if (vm.zone, str(vm.numeric_id)) == (call.zone, call.name)]
        return by_id[0] if by_id else call.name


def operation_once(
    cloud: LocalCloud, call: str, request_id: str, body: Mapping[str, Any], act: Callable[[], Operation]
) -> Operation:
    """
    Make a mutating Compute call, `POST /path`; the same *request_id* gives the same operation again.

    Errors: ApiError 400 for a zero or malformed id, and for one that came before with another body
    (the real text of that refusal was not seen).
    """
    vm_rules.check_request_id(request_id)
    state, place = cloud.kernel.state, f"{call} {request_id}"
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    if request_id and place in state.replays:
        known, name = state.replays[place]
        if known != digest:
            raise vm_rules.invalid(f"The requestId '{request_id}' was used before with another request body.")
        return state.operations[name]
    operation = act()
    if request_id:
        operation.request_id = request_id
        state.replays[place] = (digest, operation.name)
    return operation
