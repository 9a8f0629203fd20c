"""Locations, accelerator types, runtime versions and operations of the TPU API."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from orchestrator.emulator.http.dispatch import Call
from orchestrator.emulator.http.paging import rpc_page
from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.http.tpu_shapes import operation_json
from orchestrator.emulator.state import node_rules, reservations, tables
from orchestrator.emulator.state.operations import Api, Operation
from orchestrator.emulator.state.world import LocalCloud

_LARGEST_PAGE = 500


class Catalog:
    """Answer the calls that only read the catalogue."""

    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud

    def locations(self, call: Call) -> Response:
        """Answer ListLocations with the zones that the project may see."""
        hidden = self._cloud.settings.hidden_zones
        zones = [zone for zone in tables.zone_types() if zone not in hidden]
        return listed(call.request, "locations", zones, self._location)

    def location(self, call: Call) -> Response:
        node_rules.check_zone(self._cloud.kernel, call.zone)
        return Response.of(self._location(call.zone))

    def types(self, call: Call) -> Response:
        node_rules.check_zone(self._cloud.kernel, call.zone)
        kinds = tables.zone_types()[call.zone]
        return listed(call.request, "acceleratorTypes", kinds, partial(self._type, call.zone))

    def type(self, call: Call) -> Response:
        node_rules.check_zone(self._cloud.kernel, call.zone)
        if call.name not in tables.zone_types()[call.zone]:
            raise node_rules.missing(f"{self._parent(call.zone)}/acceleratorTypes/{call.name}")
        return Response.of(self._type(call.zone, call.name))

    def runtimes(self, call: Call) -> Response:
        node_rules.check_zone(self._cloud.kernel, call.zone)
        return self._versions(call, "runtimeVersions")

    def reserved(self, call: Call) -> Response:
        """Answer ListReservations of v2alpha1."""
        node_rules.check_zone(self._cloud.kernel, call.zone)
        found = reservations.in_zone(self._cloud.kernel, call.zone)
        return listed(call.request, "reservations", found, self._reservation)

    def _reservation(self, one: reservations.Reservation) -> dict[str, Any]:
        kind = one.accelerator
        return {
            "name": f"{self._parent(one.zone)}/reservations/{one.name}",
            "state": "ACTIVE",
            "standard": {
                "size": kind.counted,
                "capacityUnits": "CHIPS" if kind.counted == kind.chips else "CORES",
                "resourceType": kind.config_type,
                "usage": {"total": str(reservations.used(self._cloud.kernel, one))},
            },
        }

    def tensorflow(self, call: Call) -> Response:
        """Answer ListTensorFlowVersions of v1, with the runtime versions."""
        node_rules.check_zone(self._cloud.kernel, call.zone)
        return self._versions(call, "tensorflowVersions")

    def _versions(self, call: Call, kind: str) -> Response:
        names = sorted(tables.runtimes())
        return listed(call.request, kind, names, partial(self._version, f"{self._parent(call.zone)}/{kind}"))

    def no_nodes(self, call: Call) -> Response:
        """Answer ListNodes of v1: TPU Nodes, an architecture that the local cloud does not have."""
        node_rules.check_zone(self._cloud.kernel, call.zone)
        return Response.of({})

    def runtime(self, call: Call) -> Response:
        node_rules.check_zone(self._cloud.kernel, call.zone)
        if call.name not in tables.runtimes():
            raise node_rules.missing(f"{self._parent(call.zone)}/runtimeVersions/{call.name}")
        return Response.of(self._version(f"{self._parent(call.zone)}/runtimeVersions", call.name))

    def identity(self, _call: Call) -> Response:
        number = self._cloud.settings.project_number
        return Response.of({"identity": {"email": f"service-{number}@cloud-tpu.iam.gserviceaccount.com"}})

    def _parent(self, zone: str) -> str:
        return f"projects/{self._cloud.settings.project}/locations/{zone}"

    def _location(self, zone: str) -> dict[str, Any]:
        labels = {"cloud.googleapis.com/region": tables.region_of(zone)}
        return {"name": self._parent(zone), "locationId": zone, "labels": labels}

    def _type(self, zone: str, name: str) -> dict[str, Any]:
        kind = tables.accelerators()[name]
        config = {"type": kind.config_type, "topology": kind.topology}
        path = f"{self._parent(zone)}/acceleratorTypes/{name}"
        return {"name": path, "type": name, "acceleratorConfigs": [config]}

    def _version(self, path: str, name: str) -> dict[str, Any]:
        return {"name": f"{path}/{name}", "version": name}


class TpuOperations:
    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud

    def list(self, call: Call) -> Response:
        known = self._cloud.kernel.state.operations.values()
        own = [
            op for op in known if op.api is Api.TPU and op.scope == f"zones/{call.zone}" and not op.forgotten
        ]
        return listed(call.request, "operations", own, self._shown)

    def get(self, call: Call) -> Response:
        return Response.of(self._shown(self._find(call.zone, call.name)))

    def cancel(self, call: Call) -> Response:
        """Answer CancelOperation: the wish is noted, the operation goes on (best effort)."""
        self._find(call.zone, call.name).cancel_requested = True
        self._cloud.kernel.touch()
        return Response.of({})

    def delete(self, call: Call) -> Response:
        """Answer DeleteOperation: the record is not shown any more, the work goes on."""
        self._find(call.zone, call.name).forgotten = True
        self._cloud.kernel.touch()
        return Response.of({})

    def _find(self, zone: str, name: str) -> Operation:
        found = self._cloud.kernel.find_operation(Api.TPU, f"zones/{zone}", name)
        if found is None:
            project = self._cloud.settings.project
            raise node_rules.missing(f"projects/{project}/locations/{zone}/operations/{name}")
        return found

    def _shown(self, operation: Operation) -> dict[str, Any]:
        return operation_json(self._cloud.settings.project, operation)


def listed(
    request: Request,
    key: str,
    items: Sequence[Any],
    show: Callable[[Any], Any] = dict,
    unreachable: Sequence[str] = (),
) -> Response:
    """
    Build one page of a TPU list; only the items on the page are turned into JSON, by *show*.

    Each page names the places that were not reached; on which pages Google names them is not known.
    """
    chosen, following = rpc_page(request, items, _LARGEST_PAGE)
    more = {"nextPageToken": following} if following else {}
    places = {"unreachable": list(unreachable)} if unreachable else {}
    return Response.of({key: [show(item) for item in chosen], **more, **places})
