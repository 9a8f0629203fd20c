"""The routes of Compute Engine v1."""

from collections.abc import Callable, Sequence
from typing import Any

from orchestrator.emulator.http.batch import answer_batch
from orchestrator.emulator.http.compute_catalog import ComputeCatalog
from orchestrator.emulator.http.compute_network import NetworkRequests
from orchestrator.emulator.http.compute_shapes import operation_json
from orchestrator.emulator.http.dispatch import Call, dispatch, named
from orchestrator.emulator.http.instances import InstanceRequests
from orchestrator.emulator.http.paging import aggregated, listed
from orchestrator.emulator.http.router import Response, Router
from orchestrator.emulator.state import vm_rules
from orchestrator.emulator.state.operations import Api, Operation
from orchestrator.emulator.state.world import LocalCloud

_P = "/compute/v1/projects/{project}"
_Z = _P + "/zones/{zone}"
_I = _Z + "/instances/{instance}"
_SCOPES = {"zone": _Z, "region": _P + "/regions/{region}", "global": _P + "/global"}
Table = list[tuple[str, str, str, Callable[[Call], Response]]]
_LONGEST_WAIT = 120.0
_STEP = 1.0


def compute_routes(router: Router, cloud: LocalCloud) -> None:
    """Register Compute Engine, and its batch address that gcloud uses."""
    tables = (_instances(cloud), _catalog(cloud), _network(cloud), _operations(cloud))
    for method, verb, pattern, handler in (row for table in tables for row in table):
        router.add(verb, pattern, named(method, handler))

    def batch(call: Call) -> Response:
        return answer_batch(call.request, lambda inner: dispatch(router, cloud, inner), most=1000)

    router.add("POST", "/batch/compute/v1", named("compute.batch", batch))


def _instances(cloud: LocalCloud) -> Table:
    vms = InstanceRequests(cloud)
    return [
        ("compute.instances.insert", "POST", _Z + "/instances", vms.insert),
        ("compute.instances.bulkInsert", "POST", _Z + "/instances/bulkInsert", vms.insert_several),
        ("compute.instances.list", "GET", _Z + "/instances", vms.list),
        ("compute.instances.aggregatedList", "GET", _P + "/aggregated/instances", vms.everywhere),
        ("compute.instances.get", "GET", _I, vms.get),
        ("compute.instances.delete", "DELETE", _I, vms.delete),
        ("compute.instances.start", "POST", _I + "/start", vms.start),
        ("compute.instances.stop", "POST", _I + "/stop", vms.stop),
        ("compute.instances.reset", "POST", _I + "/reset", vms.reset),
        ("compute.instances.setMetadata", "POST", _I + "/setMetadata", vms.set_metadata),
        ("compute.instances.setLabels", "POST", _I + "/setLabels", vms.set_labels),
        ("compute.instances.setTags", "POST", _I + "/setTags", vms.set_tags),
        ("compute.instances.setScheduling", "POST", _I + "/setScheduling", vms.set_scheduling),
        (
            "compute.instances.simulateMaintenanceEvent",
            "POST",
            _I + "/simulateMaintenanceEvent",
            vms.maintain,
        ),
        ("compute.instances.getSerialPortOutput", "GET", _I + "/serialPort", vms.serial),
        ("compute.instances.getGuestAttributes", "GET", _I + "/getGuestAttributes", vms.guest_attributes),
        ("compute.disks.list", "GET", _Z + "/disks", vms.disks),
        ("compute.disks.aggregatedList", "GET", _P + "/aggregated/disks", vms.disks_everywhere),
        ("compute.disks.get", "GET", _Z + "/disks/{disk}", vms.disk),
        ("compute.disks.insert", "POST", _Z + "/disks", vms.insert_disk),
        ("compute.disks.delete", "DELETE", _Z + "/disks/{disk}", vms.delete_disk),
    ]


def _catalog(cloud: LocalCloud) -> Table:
    catalog = ComputeCatalog(cloud)
    return [
        ("compute.projects.get", "GET", _P, catalog.project),
        ("compute.zones.list", "GET", _P + "/zones", catalog.zones),
        ("compute.zones.get", "GET", _Z, catalog.zone),
        ("compute.regions.list", "GET", _P + "/regions", catalog.regions),
        ("compute.regions.get", "GET", _P + "/regions/{region}", catalog.region),
        ("compute.machineTypes.list", "GET", _Z + "/machineTypes", catalog.types),
        (
            "compute.machineTypes.aggregatedList",
            "GET",
            _P + "/aggregated/machineTypes",
            catalog.types_everywhere,
        ),
        ("compute.machineTypes.get", "GET", _Z + "/machineTypes/{name}", catalog.type),
        ("compute.diskTypes.list", "GET", _Z + "/diskTypes", catalog.disk_types),
        ("compute.diskTypes.get", "GET", _Z + "/diskTypes/{name}", catalog.disk_type),
        ("compute.images.getFromFamily", "GET", _P + "/global/images/family/{name}", catalog.family),
        ("compute.images.list", "GET", _P + "/global/images", catalog.images),
        ("compute.images.get", "GET", _P + "/global/images/{name}", catalog.image),
    ]


def _network(cloud: LocalCloud) -> Table:
    net = NetworkRequests(cloud)
    return [
        ("compute.networks.list", "GET", _P + "/global/networks", net.networks),
        ("compute.networks.get", "GET", _P + "/global/networks/{name}", net.network),
        (
            "compute.networks.getEffectiveFirewalls",
            "GET",
            _P + "/global/networks/{name}/getEffectiveFirewalls",
            net.effective,
        ),
        ("compute.subnetworks.aggregatedList", "GET", _P + "/aggregated/subnetworks", net.subnets_everywhere),
        ("compute.subnetworks.list", "GET", _SCOPES["region"] + "/subnetworks", net.subnets),
        ("compute.subnetworks.get", "GET", _SCOPES["region"] + "/subnetworks/{name}", net.subnet),
        ("compute.firewalls.list", "GET", _P + "/global/firewalls", net.firewalls),
        ("compute.firewalls.insert", "POST", _P + "/global/firewalls", net.insert_firewall),
        ("compute.firewalls.get", "GET", _P + "/global/firewalls/{firewall}", net.firewall),
        ("compute.firewalls.delete", "DELETE", _P + "/global/firewalls/{firewall}", net.delete_firewall),
    ]


def _operations(cloud: LocalCloud) -> Table:
    operations = OperationRequests(cloud)
    rows: Table = [
        (
            "compute.globalOperations.aggregatedList",
            "GET",
            _P + "/aggregated/operations",
            operations.everywhere,
        )
    ]
    for scope, prefix in _SCOPES.items():
        one = prefix + "/operations/{operation}"
        rows += [
            (f"compute.{scope}Operations.wait", "POST", one + "/wait", operations.wait),
            (f"compute.{scope}Operations.list", "GET", prefix + "/operations", operations.list),
            (f"compute.{scope}Operations.get", "GET", one, operations.get),
        ]
    return rows


class OperationRequests:
    """Answer get, list and wait in each scope."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud

    def get(self, call: Call) -> Response:
        return Response.of(self._shown(self._find(_scope(call.zone, call.region), call.name)))

    def list(self, call: Call) -> Response:
        scope = _scope(call.zone, call.region)
        if call.zone:
            vm_rules.check_zone(self._cloud.kernel, call.zone)
        path = f"projects/{self._cloud.settings.project}/{scope}/operations"
        return listed(
            call.request, "operation", path, [self._shown(op) for op in self._all() if op.scope == scope]
        )

    def everywhere(self, call: Call) -> Response:
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
