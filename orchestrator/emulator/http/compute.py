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
from orchestrator.emulator.state import body_shapes, vm_rules
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
        router.add(verb, pattern, named(f"compute.{method}", handler))

    def batch(call: Call) -> Response:
        return answer_batch(call.request, lambda inner: dispatch(router, cloud, inner), most=1000)

    router.add("POST", "/batch/compute/v1", named("compute.batch", batch))


def _instances(cloud: LocalCloud) -> Table:
    vms, change = InstanceRequests(cloud), cloud.changes
    do = vms.changing
    maintain = do(change.simulate_maintenance)
    return [
        ("instances.insert", "POST", _Z + "/instances", vms.insert),
        ("instances.bulkInsert", "POST", _Z + "/instances/bulkInsert", vms.insert_several),
        ("instances.list", "GET", _Z + "/instances", vms.list),
        ("instances.aggregatedList", "GET", _P + "/aggregated/instances", vms.everywhere),
        ("instances.get", "GET", _I, vms.get),
        ("instances.delete", "DELETE", _I, do(cloud.compute.delete)),
        ("instances.start", "POST", _I + "/start", do(cloud.compute.start)),
        ("instances.stop", "POST", _I + "/stop", do(cloud.compute.stop)),
        ("instances.reset", "POST", _I + "/reset", do(cloud.compute.reset)),
        ("instances.setMetadata", "POST", _I + "/setMetadata", do(change.set_metadata, body_shapes.METADATA)),
        ("instances.setLabels", "POST", _I + "/setLabels", do(change.set_labels, body_shapes.LABELS)),
        ("instances.setTags", "POST", _I + "/setTags", do(change.set_tags, body_shapes.TAGS)),
        (
            "instances.setScheduling",
            "POST",
            _I + "/setScheduling",
            do(change.set_scheduling, body_shapes.SCHEDULING),
        ),
        ("instances.simulateMaintenanceEvent", "POST", _I + "/simulateMaintenanceEvent", maintain),
        ("instances.getSerialPortOutput", "GET", _I + "/serialPort", vms.serial),
        ("instances.getGuestAttributes", "GET", _I + "/getGuestAttributes", vms.guest_attributes),
        ("disks.list", "GET", _Z + "/disks", vms.disks),
        ("disks.aggregatedList", "GET", _P + "/aggregated/disks", vms.disks_everywhere),
        ("disks.get", "GET", _Z + "/disks/{disk}", vms.disk),
        ("disks.insert", "POST", _Z + "/disks", vms.insert_disk),
        ("disks.delete", "DELETE", _Z + "/disks/{disk}", do(cloud.compute.disks.delete)),
    ]


def _catalog(cloud: LocalCloud) -> Table:
    catalog = ComputeCatalog(cloud)
    return [
        ("projects.get", "GET", _P, catalog.project),
        ("zones.list", "GET", _P + "/zones", catalog.zones),
        ("zones.get", "GET", _Z, catalog.zone),
        ("regions.list", "GET", _P + "/regions", catalog.regions),
        ("regions.get", "GET", _P + "/regions/{region}", catalog.region),
        ("machineTypes.list", "GET", _Z + "/machineTypes", catalog.types),
        ("machineTypes.aggregatedList", "GET", _P + "/aggregated/machineTypes", catalog.types_everywhere),
        ("machineTypes.get", "GET", _Z + "/machineTypes/{name}", catalog.type),
        ("diskTypes.list", "GET", _Z + "/diskTypes", catalog.disk_types),
        ("diskTypes.get", "GET", _Z + "/diskTypes/{name}", catalog.disk_type),
        ("images.getFromFamily", "GET", _P + "/global/images/family/{name}", catalog.family),
        ("images.list", "GET", _P + "/global/images", catalog.images),
        ("images.get", "GET", _P + "/global/images/{name}", catalog.image),
    ]


def _network(cloud: LocalCloud) -> Table:
    net = NetworkRequests(cloud)
    return [
        ("networks.list", "GET", _P + "/global/networks", net.networks),
        ("networks.get", "GET", _P + "/global/networks/{name}", net.network),
        (
            "networks.getEffectiveFirewalls",
            "GET",
            _P + "/global/networks/{name}/getEffectiveFirewalls",
            net.effective,
        ),
        ("subnetworks.aggregatedList", "GET", _P + "/aggregated/subnetworks", net.subnets_everywhere),
        ("subnetworks.list", "GET", _SCOPES["region"] + "/subnetworks", net.subnets),
        ("subnetworks.get", "GET", _SCOPES["region"] + "/subnetworks/{name}", net.subnet),
        ("firewalls.list", "GET", _P + "/global/firewalls", net.firewalls),
        ("firewalls.insert", "POST", _P + "/global/firewalls", net.insert_firewall),
        ("firewalls.get", "GET", _P + "/global/firewalls/{firewall}", net.firewall),
        ("firewalls.delete", "DELETE", _P + "/global/firewalls/{firewall}", net.delete_firewall),
    ]


def _operations(cloud: LocalCloud) -> Table:
    operations = OperationRequests(cloud)
    rows: Table = [
        ("globalOperations.aggregatedList", "GET", _P + "/aggregated/operations", operations.everywhere)
    ]
    for scope, prefix in _SCOPES.items():
        one = prefix + "/operations/{operation}"
        rows += [
            (f"{scope}Operations.wait", "POST", one + "/wait", operations.wait),
            (f"{scope}Operations.list", "GET", prefix + "/operations", operations.list),
            (f"{scope}Operations.get", "GET", one, operations.get),
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
