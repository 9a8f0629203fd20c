"""Serve Cloud TPU: nodes, queued resources, catalogue, operations."""

from collections.abc import Callable, Collection, Sequence
from functools import partial
from operator import attrgetter
from typing import Any

from orchestrator.emulator.http.dispatch import ApiCall, body_of, named
from orchestrator.emulator.http.metadata_tree import items_json
from orchestrator.emulator.http.paging import SortOrder, rpc_page
from orchestrator.emulator.http.router import Request, Response, Router
from orchestrator.emulator.http.tpu_shapes import node_json, operation_json, queued_json
from orchestrator.emulator.state import body_shapes, constraints, tables
from orchestrator.emulator.state.api_errors import ApiError
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.tpu import node_rules, reservations
from orchestrator.emulator.state.values.operation import Api, Operation
from orchestrator.emulator.state.values.queued import QueuedResource

VERSIONS = ("/v2", "/v2alpha1")
_LARGEST_PAGE = 500
_NAME, _PATH = attrgetter("name"), attrgetter("path")
_P = "/projects/{project}/locations"
_Z = _P + "/{zone}"
Table = list[tuple[str, str, str, Callable[[ApiCall], Response]]]


def tpu_routes(router: Router, cloud: LocalCloud) -> None:
    """Register the TPU API: v2, the same as v2alpha1, and the catalogue of v1."""
    catalog = Catalog(cloud)
    for version in VERSIONS:
        alpha = version == "/v2alpha1"
        _add(
            router,
            version,
            [*_nodes(cloud), *_operations(cloud), *catalog.table(), *_queued(cloud, alpha=alpha)],
        )
    _add(router, "/v2alpha1", [("reservations.list", "GET", _Z + "/reservations", catalog.reserved)])
    _add(router, "/v1", catalog.table(v1=True))


def _add(router: Router, version: str, table: Table) -> None:
    for method, verb, pattern, handler in table:
        router.add(verb, version + pattern, named(f"tpu.{method}", handler))


def _nodes(cloud: LocalCloud) -> Table:
    nodes, every, node = NodeRequests(cloud), _Z + "/nodes", _Z + "/nodes/{node}"
    return [
        ("nodes.getGuestAttributes", "POST", node + ":getGuestAttributes", nodes.guest_attributes),
        ("nodes.stop", "POST", node + ":stop", nodes.changing(cloud.tpu.stop)),
        ("nodes.start", "POST", node + ":start", nodes.changing(cloud.tpu.start)),
        ("nodes.create", "POST", every, nodes.create),
        ("nodes.list", "GET", every, nodes.list),
        ("nodes.get", "GET", node, nodes.get),
        ("nodes.delete", "DELETE", node, nodes.changing(cloud.tpu.delete)),
        ("nodes.update", "PATCH", node, nodes.update),
    ]


def _queued(cloud: LocalCloud, *, alpha: bool) -> Table:
    calls, every, one = (
        QueuedRequests(cloud, alpha=alpha),
        _Z + "/queuedResources",
        _Z + "/queuedResources/{queued}",
    )
    return [
        ("queuedResources.reset", "POST", one + ":reset", calls.reset),
        ("queuedResources.create", "POST", every, calls.create),
        ("queuedResources.list", "GET", every, calls.list),
        ("queuedResources.get", "GET", one, calls.get),
        ("queuedResources.delete", "DELETE", one, calls.delete),
    ]


def _operations(cloud: LocalCloud) -> Table:
    calls, every, one = OperationRequests(cloud), _Z + "/operations", _Z + "/operations/{operation}"
    return [
        ("operations.cancel", "POST", one + ":cancel", calls.cancel),
        ("operations.list", "GET", every, calls.list),
        ("operations.get", "GET", one, calls.get),
        ("operations.delete", "DELETE", one, calls.delete),
    ]


class _Answers:
    def __init__(self, cloud: LocalCloud) -> None:
        self._cloud = cloud

    def _parent(self, zone: str) -> str:
        return f"projects/{self._cloud.settings.project}/locations/{zone}"

    def _operation(self, operation: Operation) -> Response:
        return Response.of(self._operation_json(operation))

    def _operation_json(self, operation: Operation) -> dict[str, Any]:
        return operation_json(self._cloud.settings.project, operation)

    def _listed(
        self,
        request: Request,
        key: str,
        items: Sequence[Any],
        show: Callable[[Any], Any],
        by: Callable[[Any], str],
        silent: Sequence[str] = (),
    ) -> Response:
        """
        Return one page of a list sorted *by* a key; only the page's items are converted by *show*.

        Each page names the zones that were not reached; on which pages Google does that is not known.
        """
        chosen, following = rpc_page(request, items, SortOrder(by), _LARGEST_PAGE)
        more = {"nextPageToken": following} if following else {}
        places = {"unreachable": [self._parent(zone) for zone in silent]} if silent else {}
        return Response.of({key: [show(item) for item in chosen], **more, **places})


class NodeRequests(_Answers):
    def create(self, call: ApiCall) -> Response:
        node, body = call.request.query.get("nodeId", ""), body_of(call.request, body_shapes.NODE)
        return self._operation(self._cloud.tpu.create(call.zone, node, body))

    def list(self, call: ApiCall) -> Response:
        """Answer ListNodes of a zone or of all (`-`), naming zones that were not reached."""
        nodes, silent = self._cloud.tpu.listed(call.zone)
        return self._listed(call.request, "nodes", nodes, node_json, _PATH, silent)

    def get(self, call: ApiCall) -> Response:
        return Response.of(node_json(self._cloud.tpu.get(call.zone, call.name)))

    def changing(self, act: Callable[[str, str], Operation]) -> Callable[[ApiCall], Response]:
        return lambda call: self._operation(act(call.zone, call.name))

    def update(self, call: ApiCall) -> Response:
        mask, body = call.request.query.get("updateMask", ""), body_of(call.request, body_shapes.NODE)
        return self._operation(self._cloud.tpu.update(call.zone, call.name, body, mask))

    def guest_attributes(self, call: ApiCall) -> Response:
        """
        Answer GetGuestAttributes, with one entry for each requested worker.

        The real answer for a worker without such attributes is not known; here its entry has no items.
        """
        body = body_of(call.request, {"queryPath": str, "workerIds": [str]})
        constraints.check_guest_attributes(self._cloud.kernel, compute=False)
        found, query = self._cloud.tpu.get(call.zone, call.name), body.get("queryPath", "")
        # gcloud requests all workers with the single id "".
        indices = [int(i) for i in body.get("workerIds", ()) if i] or range(len(found.workers))
        for index in indices:
            node_rules.check_worker(found, index)
        return Response.of({"guestAttributes": [self._worker(found.workers[i].id, query) for i in indices]})

    def _worker(self, machine_id: str, query: str) -> dict[str, Any]:
        gone = self._cloud.machine(machine_id) is None
        items = [] if gone else items_json(self._cloud.guest_attributes(machine_id), query)
        return {"queryPath": query, "queryValue": {"items": items}}


class QueuedRequests(_Answers):
    """Answers calls on queued resources, of v2 or of v2alpha1, which has more fields."""

    def __init__(self, cloud: LocalCloud, *, alpha: bool) -> None:
        super().__init__(cloud)
        self._alpha = alpha

    def create(self, call: ApiCall) -> Response:
        query, body = call.request.query, body_of(call.request, body_shapes.QUEUED)
        unknown = next((key for key in body_shapes.ONLY_ALPHA if key in body and not self._alpha), "")
        if unknown:
            text = f"Unknown name \"{unknown}\" at 'queued_resource': Cannot find field."
            raise ApiError(400, "INVALID_ARGUMENT", f"Invalid JSON payload received. {text}")
        name, request_id = query.get("queuedResourceId", ""), query.get("requestId", "")
        return self._operation(self._cloud.queued.create(call.zone, name, body, request_id))

    def list(self, call: ApiCall) -> Response:
        """Answer ListQueuedResources of a zone or of all (`-`), as ListNodes does."""
        found, silent = self._cloud.queued.listed(call.zone)
        return self._listed(call.request, "queuedResources", found, self._shown, _PATH, silent)

    def get(self, call: ApiCall) -> Response:
        return Response.of(self._shown(self._cloud.queued.get(call.zone, call.name)))

    def delete(self, call: ApiCall) -> Response:
        query, delete = call.request.query, self._cloud.queued.delete
        force, request_id = query.get("force", "").lower() == "true", query.get("requestId", "")
        return self._operation(delete(call.zone, call.name, force=force, request_id=request_id))

    def reset(self, call: ApiCall) -> Response:
        return self._operation(self._cloud.queued.reset(call.zone, call.name))

    def _shown(self, queued: QueuedResource) -> dict[str, Any]:
        shown = queued_json(queued)
        return shown if self._alpha else {k: v for k, v in shown.items() if k not in body_shapes.ONLY_ALPHA}


class OperationRequests(_Answers):
    def list(self, call: ApiCall) -> Response:
        known, scope = self._cloud.kernel.state.operations.values(), f"zones/{call.zone}"
        own = [op for op in known if op.api is Api.TPU and op.scope == scope and not op.forgotten]
        return self._listed(call.request, "operations", own, self._operation_json, _NAME)

    def get(self, call: ApiCall) -> Response:
        return self._operation(self._find(call))

    def cancel(self, call: ApiCall) -> Response:
        """Answer CancelOperation: the request is recorded, but the operation continues (best effort)."""
        self._find(call).cancel_requested = True
        self._cloud.kernel.touch()
        return Response.of({})

    def delete(self, call: ApiCall) -> Response:
        """Answer DeleteOperation: the record disappears, but the work continues."""
        self._find(call).forgotten = True
        self._cloud.kernel.touch()
        return Response.of({})

    def _find(self, call: ApiCall) -> Operation:
        found = self._cloud.kernel.find_operation(Api.TPU, f"zones/{call.zone}", call.name)
        if found is None:
            raise node_rules.missing(f"{self._parent(call.zone)}/operations/{call.name}")
        return found


class Catalog(_Answers):
    def table(self, *, v1: bool = False) -> Table:
        """Return the routes; v1 has another name for runtime versions, and TPU Nodes, of which there are none."""
        versions = "tensorflowVersions" if v1 else "runtimeVersions"
        shared: Table = [
            *self._collection(
                "acceleratortypes", "acceleratorTypes", lambda at: tables.zone_types()[at], _type
            ),
            *self._collection("runtimeversions", versions, lambda _: sorted(tables.runtimes()), _version),
            ("locations.list", "GET", _P, self.locations),
            ("locations.get", "GET", _Z, self.location),
        ]
        if v1:
            return [*shared, ("nodes.list", "GET", _Z + "/nodes", self.no_nodes)]
        identity = (
            "locations.generateServiceIdentity",
            "POST",
            _Z + ":generateServiceIdentity",
            self.identity,
        )
        # `{zone}` would match "ZONE:generateServiceIdentity" too, so the longer pattern comes first.
        return [identity, *shared]

    def _collection(
        self,
        method: str,
        key: str,
        names: Callable[[str], Collection[str]],
        show: Callable[[str], dict[str, Any]],
    ) -> Table:
        """Return the routes of list and get; *names* returns a zone's entries, *show* an entry's JSON."""

        def shown(zone: str, name: str) -> dict[str, Any]:
            return {"name": f"{self._parent(zone)}/{key}/{name}", **show(name)}

        def every(call: ApiCall) -> Response:
            node_rules.check_zone(self._cloud.kernel, call.zone)
            return self._listed(call.request, key, list(names(call.zone)), partial(shown, call.zone), str)

        def get(call: ApiCall) -> Response:
            node_rules.check_zone(self._cloud.kernel, call.zone)
            if call.name not in names(call.zone):
                raise node_rules.missing(f"{self._parent(call.zone)}/{key}/{call.name}")
            return Response.of(shown(call.zone, call.name))

        at = f"{_Z}/{key}"
        return [(f"{method}.list", "GET", at, every), (f"{method}.get", "GET", at + "/{name}", get)]

    def locations(self, call: ApiCall) -> Response:
        """Answer ListLocations with the zones that the project may see."""
        hidden = self._cloud.settings.hidden_zones
        zones = [zone for zone in tables.zone_types() if zone not in hidden]
        return self._listed(call.request, "locations", zones, self._location, str)

    def location(self, call: ApiCall) -> Response:
        node_rules.check_zone(self._cloud.kernel, call.zone)
        return Response.of(self._location(call.zone))

    def no_nodes(self, call: ApiCall) -> Response:
        """Answer ListNodes of v1: TPU Nodes, an architecture that the local cloud does not have."""
        node_rules.check_zone(self._cloud.kernel, call.zone)
        return Response.of({})

    def identity(self, _call: ApiCall) -> Response:
        number = self._cloud.settings.project_number
        return Response.of({"identity": {"email": f"service-{number}@cloud-tpu.iam.gserviceaccount.com"}})

    def reserved(self, call: ApiCall) -> Response:
        node_rules.check_zone(self._cloud.kernel, call.zone)
        found = reservations.in_zone(self._cloud.kernel, call.zone)
        return self._listed(call.request, "reservations", found, self._reservation, _NAME)

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

    def _location(self, zone: str) -> dict[str, Any]:
        labels = {"cloud.googleapis.com/region": tables.region_of(zone)}
        return {"name": self._parent(zone), "locationId": zone, "labels": labels}


def _type(name: str) -> dict[str, Any]:
    kind = tables.accelerators()[name]
    config = {"type": kind.config_type, "topology": kind.topology}
    return {"type": name, "acceleratorConfigs": [config]}


def _version(name: str) -> dict[str, Any]:
    return {"version": name}
