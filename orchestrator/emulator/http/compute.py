"""The calls of Compute Engine v1: routes, VMs and operations."""

from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.emulator.http.batch import answer_batch
from orchestrator.emulator.http.compute_catalog import Collection, ComputeCatalog
from orchestrator.emulator.http.compute_shapes import instance_json, link, operation_json
from orchestrator.emulator.http.dispatch import ApiCall, body_of, dispatch, named
from orchestrator.emulator.http.metadata_tree import items_json
from orchestrator.emulator.http.paging import aggregated, listed
from orchestrator.emulator.http.router import Response, Router
from orchestrator.emulator.state import api_errors, body_shapes, constraints
from orchestrator.emulator.state.api_errors import compute_case
from orchestrator.emulator.state.body_shapes import Shape, check_shape
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.replays import once
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.vm import vm_rules

_P = "/compute/v1/projects/{project}"
_Z, _R, _G = _P + "/zones/{zone}", _P + "/regions/{region}", _P + "/global"
_I = _Z + "/instances/{instance}"
_SCOPES = {"zone": _Z, "region": _R, "global": _G}
Table = list[tuple[str, str, str, Callable[[ApiCall], Response]]]
_LONGEST_WAIT = 120.0
"""Seconds for which `operations.wait` is held: two minutes, says the documentation of Google's client."""
_STEP = 1.0
"""Seconds between two checks of an operation that is waited for."""
_SERIAL_RING = 1024 * 1024


def compute_routes(router: Router, cloud: LocalCloud) -> None:
    """Register Compute Engine, and its batch address that gcloud uses."""
    for method, verb, pattern, handler in (*_changes(cloud), *_reads(cloud), *_operations(cloud)):
        router.add(verb, pattern, named(f"compute.{method}", handler))

    def batch(call: ApiCall) -> Response:
        return answer_batch(call.request, lambda inner: dispatch(router, cloud, inner), most=1000)

    router.add("POST", "/batch/compute/v1", named("compute.batch", batch))


def _changes(cloud: LocalCloud) -> Table:
    """Return the calls that answer with an operation."""
    vms, change, net, disks = cloud.compute, cloud.changes, cloud.network, cloud.compute.disks

    def do(act: Callable[..., Operation], shape: Shape | None = None) -> Callable[[ApiCall], Response]:
        """Wrap *act* as a call with the place and name in the path; *shape* adds the body as an argument."""

        def changed(call: ApiCall) -> Operation:
            where = [part for part in (call.zone, call.name) if part]
            return act(*where, *([] if shape is None else [body_of(call.request, shape)]))

        return lambda call: _once(cloud, call, lambda: changed(call))

    verbs: dict[str, tuple[Any, ...]] = {
        "start": (vms.start,),
        "stop": (vms.stop,),
        "reset": (vms.reset,),
        "simulateMaintenanceEvent": (change.simulate_maintenance,),
        "setMetadata": (change.set_metadata, body_shapes.METADATA),
        "setLabels": (change.set_labels, body_shapes.LABELS),
        "setServiceAccount": (change.set_service_account, body_shapes.SERVICE_ACCOUNT),
        "setTags": (change.set_tags, body_shapes.TAGS),
        "setScheduling": (change.set_scheduling, body_shapes.SCHEDULING),
    }
    return [
        ("instances.insert", "POST", _Z + "/instances", do(vms.insert, body_shapes.INSTANCE)),
        ("instances.bulkInsert", "POST", _Z + "/instances/bulkInsert", lambda call: _insert_several(cloud, call)),
        ("instances.delete", "DELETE", _I, do(vms.delete)),
        *((f"instances.{verb}", "POST", f"{_I}/{verb}", do(*act)) for verb, act in verbs.items()),
        ("disks.insert", "POST", _Z + "/disks", do(disks.insert, body_shapes.DISK)),
        ("disks.delete", "DELETE", _Z + "/disks/{disk}", do(disks.delete)),
        ("firewalls.insert", "POST", _G + "/firewalls", do(net.insert_firewall, body_shapes.FIREWALL)),
        ("firewalls.delete", "DELETE", _G + "/firewalls/{firewall}", do(net.delete_firewall)),
    ]  # fmt: skip


def _reads(cloud: LocalCloud) -> Table:
    catalog, vms = ComputeCatalog(cloud), VmRequests(cloud)
    rules, images = _G + "/networks/{name}/getEffectiveFirewalls", _G + "/images"
    return [
        ("instances.get", "GET", _I, vms.get),
        ("instances.list", "GET", _Z + "/instances", vms.listed.list),
        ("instances.aggregatedList", "GET", _P + "/aggregated/instances", vms.listed.aggregated),
        ("instances.getSerialPortOutput", "GET", _I + "/serialPort", vms.serial),
        ("instances.getGuestAttributes", "GET", _I + "/getGuestAttributes", vms.guest_attributes),
        *_collection("disks", _Z, catalog.disks, aggregated=True),
        ("projects.get", "GET", _P, catalog.project),
        *_collection("zones", _P, catalog.zones),
        *_collection("regions", _P, catalog.regions),
        *_collection("machineTypes", _Z, catalog.types, aggregated=True),
        *_collection("diskTypes", _Z, catalog.disk_types),
        ("images.getFromFamily", "GET", images + "/family/{name}", catalog.family),
        ("images.list", "GET", images, catalog.images),
        ("images.get", "GET", images + "/{name}", catalog.image),
        *_collection("networks", _G, catalog.networks),
        ("networks.getEffectiveFirewalls", "GET", rules, catalog.effective_firewalls),
        *_collection("subnetworks", _R, catalog.subnets, aggregated=True),
        *_collection("firewalls", _G, catalog.firewalls),
    ]  # fmt: skip


def _collection(name: str, parent: str, answers: Collection[Any], *, aggregated: bool = False) -> Table:
    at = f"{parent}/{name}"
    lists: Table = [
        (f"{name}.list", "GET", at, answers.list),
        (f"{name}.get", "GET", at + "/{name}", answers.get),
    ]
    more = (f"{name}.aggregatedList", "GET", f"{_P}/aggregated/{name}", answers.aggregated)
    return [*lists, more] if aggregated else lists


def _operations(cloud: LocalCloud) -> Table:
    operations = OperationRequests(cloud)
    rows: Table = [
        ("globalOperations.aggregatedList", "GET", _P + "/aggregated/operations", operations.aggregated)
    ]
    for scope, prefix in _SCOPES.items():
        one = prefix + "/operations/{operation}"
        rows += [
            (f"{scope}Operations.wait", "POST", one + "/wait", operations.wait),
            (f"{scope}Operations.list", "GET", prefix + "/operations", operations.list),
            (f"{scope}Operations.get", "GET", one, operations.get),
        ]
    return rows


def _once(cloud: LocalCloud, call: ApiCall, act: Callable[[], Operation]) -> Response:
    """Answer a changing call; a repeated requestId returns the same operation."""
    name, request_id = f"{call.request.method} {call.request.path}", call.request.query.get("requestId", "")
    operation = once(cloud.kernel, name, request_id, body_of(call.request), act, api_errors.invalid)
    return Response.of(operation_json(cloud.settings.project, operation))


def _insert_several(cloud: LocalCloud, call: ApiCall) -> Response:
    """Answer instances.bulkInsert, whose 64-bit numbers may be numbers or text."""
    body = body_of(call.request)
    counts = {key: str(body[key]) for key in ("count", "minCount") if isinstance(body.get(key), int)}
    body = {**body, **counts}
    check_shape(body, dict(body_shapes.SEVERAL))
    return _once(cloud, call, lambda: cloud.compute.insert_several(call.zone, body))


class VmRequests:
    """Answers calls that read a VM."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud
        known = cloud.compute.in_zone
        self.listed = Collection(
            cloud, "instance", "zones",
            lambda zone: {vm.name: vm for vm in known(zone)},
            lambda _, vm: instance_json(vm, cloud.kernel.state.disks),
        )  # fmt: skip

    def get(self, call: ApiCall) -> Response:
        """Answer instances.get; the path holds a name or a numeric id."""
        known = self._cloud.kernel.state.instances.values()
        by_id = [vm.name for vm in known if (vm.zone, str(vm.numeric_id)) == (call.zone, call.name)]
        found = self._cloud.compute.get(call.zone, by_id[0] if by_id else call.name)
        return Response.of(instance_json(found, self._cloud.kernel.state.disks))

    def serial(self, call: ApiCall) -> Response:
        """
        Answer instances.getSerialPortOutput for port 1, of which the last MiB is kept.

        A negative start counts from the end.
        """
        vm = self._cloud.compute.get(call.zone, call.name)
        printed = self._cloud.kernel.machines.serial(vm.machine_id)
        asked = int(call.request.query.get("start", "0"))
        oldest = max(0, len(printed) - _SERIAL_RING)
        start = max(oldest, len(printed) + asked if asked < 0 else asked)
        text = printed[start:].decode("utf-8", "replace")
        shown = {"kind": "compute#serialPortOutput", "selfLink": link(vm.path + "/serialPort")}
        return Response.of({**shown, "contents": text, "start": str(start), "next": str(len(printed))})

    def guest_attributes(self, call: ApiCall) -> Response:
        """Answer instances.getGuestAttributes; 404 if there is nothing at the path."""
        vm = self._cloud.compute.get(call.zone, call.name)
        constraints.check_guest_attributes(self._cloud.kernel, compute=True)
        query = call.request.query.get("queryPath") or call.request.query.get("variableKey", "")
        items = items_json(self._cloud.guest_attributes(vm.machine_id), query)
        if not items:
            raise compute_case("no guest attributes").error(path=query)
        shown = {"kind": "compute#guestAttributes", "selfLink": link(vm.path + "/guestAttributes/" + query)}
        return Response.of({**shown, "queryPath": query, "queryValue": {"items": items}})


class OperationRequests:
    """Answers get, list and wait of operations in each scope."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud

    def get(self, call: ApiCall) -> Response:
        return Response.of(self._shown(self._find(_scope(call.zone, call.region), call.name)))

    def list(self, call: ApiCall) -> Response:
        scope = _scope(call.zone, call.region)
        if call.zone:
            vm_rules.check_zone(self._cloud.kernel, call.zone)
        path = f"projects/{self._cloud.settings.project}/{scope}/operations"
        return listed(
            call.request, "operation", path, [self._shown(op) for op in self._all() if op.scope == scope]
        )

    def aggregated(self, call: ApiCall) -> Response:
        scopes: dict[str, list[dict[str, Any]]] = {}
        for operation in self._all():
            scopes.setdefault(operation.scope, []).append(self._shown(operation))
        path = f"projects/{self._cloud.settings.project}/aggregated/operations"
        return aggregated(call.request, "operations", path, dict(scopes))

    def wait(self, call: ApiCall) -> Response:
        """Answer wait: return when the operation is done, or after two minutes in its present state."""
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
            raise api_errors.missing(f"projects/{self._cloud.settings.project}/{scope}/operations/{name}")
        return found or by_id[0]

    def _shown(self, operation: Operation) -> dict[str, Any]:
        return operation_json(self._cloud.settings.project, operation)


def _scope(zone: str, region: str) -> str:
    if zone:
        return f"zones/{zone}"
    return f"regions/{region}" if region else "global"
