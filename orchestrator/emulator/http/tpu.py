"""The routes of Cloud TPU: nodes, queued resources, catalogue, operations."""

from collections.abc import Callable
from typing import Any

from orchestrator.emulator.http.dispatch import Call, body_of, named
from orchestrator.emulator.http.metadata import items_json
from orchestrator.emulator.http.router import Response, Router
from orchestrator.emulator.http.tpu_catalog import Catalog, TpuOperations, listed
from orchestrator.emulator.http.tpu_shapes import node_json, operation_json, queued_json
from orchestrator.emulator.state import body_shapes, constraints, node_rules
from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.operations import Operation
from orchestrator.emulator.state.queued import QueuedResource
from orchestrator.emulator.state.world import LocalCloud

VERSIONS = ("/v2", "/v2alpha1")
_P = "/projects/{project}/locations"


def tpu_routes(router: Router, cloud: LocalCloud) -> None:
    """Register the TPU API: v2, the same as v2alpha1, and of v1 what only reads the catalogue."""
    for version in VERSIONS:
        _version_routes(router, cloud, version + _P)
    catalog = Catalog(cloud)
    listing = named("tpu.reservations.list", catalog.reserved)
    router.add("GET", f"/v2alpha1{_P}/{{zone}}/reservations", listing)
    at = f"/v1{_P}"
    table: list[tuple[str, str, str, Callable[[Call], Response]]] = [
        ("locations.list", "GET", at, catalog.locations),
        ("locations.get", "GET", at + "/{zone}", catalog.location),
        ("nodes.list", "GET", at + "/{zone}/nodes", catalog.no_nodes),
        ("acceleratortypes.list", "GET", at + "/{zone}/acceleratorTypes", catalog.types),
        ("acceleratortypes.get", "GET", at + "/{zone}/acceleratorTypes/{name}", catalog.type),
        ("runtimeversions.list", "GET", at + "/{zone}/tensorflowVersions", catalog.tensorflow),
    ]
    for method, verb, pattern, handler in table:
        router.add(verb, pattern, named(f"tpu.{method}", handler))


def _version_routes(router: Router, cloud: LocalCloud, locations: str) -> None:
    nodes, catalog, operations = NodeRequests(cloud), Catalog(cloud), TpuOperations(cloud)
    zone = locations + "/{zone}"
    node, operation = zone + "/nodes/{node}", zone + "/operations/{operation}"
    table: list[tuple[str, str, str, Callable[[Call], Response]]] = [
        ("nodes.getGuestAttributes", "POST", node + ":getGuestAttributes", nodes.guest_attributes),
        ("nodes.stop", "POST", node + ":stop", nodes.changing(cloud.tpu.stop)),
        ("nodes.start", "POST", node + ":start", nodes.changing(cloud.tpu.start)),
        ("nodes.create", "POST", zone + "/nodes", nodes.create),
        ("nodes.list", "GET", zone + "/nodes", nodes.list),
        ("nodes.get", "GET", node, nodes.get),
        ("nodes.delete", "DELETE", node, nodes.changing(cloud.tpu.delete)),
        ("nodes.update", "PATCH", node, nodes.update),
        ("operations.cancel", "POST", operation + ":cancel", operations.cancel),
        ("operations.list", "GET", zone + "/operations", operations.list),
        ("operations.get", "GET", operation, operations.get),
        ("operations.delete", "DELETE", operation, operations.delete),
        ("acceleratortypes.list", "GET", zone + "/acceleratorTypes", catalog.types),
        ("acceleratortypes.get", "GET", zone + "/acceleratorTypes/{name}", catalog.type),
        ("runtimeversions.list", "GET", zone + "/runtimeVersions", catalog.runtimes),
        ("runtimeversions.get", "GET", zone + "/runtimeVersions/{name}", catalog.runtime),
        ("locations.generateServiceIdentity", "POST", zone + ":generateServiceIdentity", catalog.identity),
        ("locations.list", "GET", locations, catalog.locations),
        ("locations.get", "GET", zone, catalog.location),
    ]
    for method, verb, pattern, handler in table:
        router.add(verb, pattern, named(f"tpu.{method}", handler))
    queued_routes(router, cloud, zone)


class NodeRequests:
    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud

    def create(self, call: Call) -> Response:
        node = call.request.query.get("nodeId", "")
        return self._operation(
            self._cloud.tpu.create(call.zone, node, body_of(call.request, body_shapes.NODE))
        )

    def list(self, call: Call) -> Response:
        """Answer ListNodes of a zone, or of all (`-`); places that were not reached are named."""
        nodes, silent = self._cloud.tpu.listed(call.zone)
        places = [f"projects/{self._cloud.settings.project}/locations/{zone}" for zone in silent]
        return listed(call.request, "nodes", nodes, node_json, places)

    def get(self, call: Call) -> Response:
        return Response.of(node_json(self._cloud.tpu.get(call.zone, call.name)))

    def changing(self, act: Callable[[str, str], Operation]) -> Callable[[Call], Response]:
        return lambda call: self._operation(act(call.zone, call.name))

    def update(self, call: Call) -> Response:
        mask = call.request.query.get("updateMask", "")
        return self._operation(
            self._cloud.tpu.update(call.zone, call.name, body_of(call.request, body_shapes.NODE), mask)
        )

    def guest_attributes(self, call: Call) -> Response:
        """
        Answer GetGuestAttributes, one entry for each worker asked for.

        What the real API answers for a worker without such attributes was not seen; here its
        entry has no items.
        """
        body = body_of(call.request, {"queryPath": str, "workerIds": [str]})
        constraints.check_guest_attributes(self._cloud.kernel, compute=False)
        found, query = self._cloud.tpu.get(call.zone, call.name), body.get("queryPath", "")
        # gcloud asks for all workers by the one id "".
        indices = [int(i) for i in body.get("workerIds", ()) if i] or range(len(found.workers))
        for index in indices:
            node_rules.check_worker(found, index)
        return Response.of({"guestAttributes": [self._worker(found.workers[i].id, query) for i in indices]})

    def _worker(self, machine_id: str, query: str) -> dict[str, Any]:
        gone = self._cloud.machine(machine_id) is None
        items = [] if gone else items_json(self._cloud.guest_attributes(machine_id), query)
        return {"queryPath": query, "queryValue": {"items": items}}

    def _operation(self, operation: Operation) -> Response:
        return Response.of(operation_json(self._cloud.settings.project, operation))


def queued_routes(router: Router, cloud: LocalCloud, location: str) -> None:
    every = location + "/queuedResources"
    calls = QueuedRequests(cloud, alpha=location.startswith("/v2alpha1/"))
    one = every + "/{queued}"
    table: list[tuple[str, str, str, Callable[[Call], Response]]] = [
        ("queuedResources.reset", "POST", one + ":reset", calls.reset),
        ("queuedResources.create", "POST", every, calls.create),
        ("queuedResources.list", "GET", every, calls.list),
        ("queuedResources.get", "GET", one, calls.get),
        ("queuedResources.delete", "DELETE", one, calls.delete),
    ]
    for method, verb, pattern, handler in table:
        router.add(verb, pattern, named(f"tpu.{method}", handler))


class QueuedRequests:
    """Answer the calls on queued resources, of v2 or of v2alpha1, which has some fields more."""

    def __init__(self, cloud: LocalCloud, *, alpha: bool) -> None:
        self._cloud, self._alpha = cloud, alpha

    def create(self, call: Call) -> Response:
        query, body = call.request.query, body_of(call.request, body_shapes.QUEUED)
        unknown = next((key for key in body_shapes.ONLY_ALPHA if key in body and not self._alpha), "")
        if unknown:
            text = f"Unknown name \"{unknown}\" at 'queued_resource': Cannot find field."
            raise ApiError(400, "INVALID_ARGUMENT", f"Invalid JSON payload received. {text}")
        name, request_id = query.get("queuedResourceId", ""), query.get("requestId", "")
        return self._operation(self._cloud.queued.create(call.zone, name, body, request_id))

    def list(self, call: Call) -> Response:
        """Answer ListQueuedResources of a zone, or of all (`-`), as ListNodes does."""
        found, silent = self._cloud.queued.listed(call.zone)
        places = [f"projects/{self._cloud.settings.project}/locations/{zone}" for zone in silent]
        return listed(call.request, "queuedResources", found, self._shown, places)

    def get(self, call: Call) -> Response:
        return Response.of(self._shown(self._cloud.queued.get(call.zone, call.name)))

    def delete(self, call: Call) -> Response:
        query = call.request.query
        force, request_id = query.get("force", "").lower() == "true", query.get("requestId", "")
        return self._operation(
            self._cloud.queued.delete(call.zone, call.name, force=force, request_id=request_id)
        )

    def reset(self, call: Call) -> Response:
        return self._operation(self._cloud.queued.reset(call.zone, call.name))

    def _shown(self, found: QueuedResource) -> dict[str, Any]:
        shown = queued_json(found)
        return shown if self._alpha else {k: v for k, v in shown.items() if k not in body_shapes.ONLY_ALPHA}

    def _operation(self, operation: Operation) -> Response:
        return Response.of(operation_json(self._cloud.settings.project, operation))
