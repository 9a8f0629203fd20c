"""The routes of Cloud TPU v2: queued resources."""

from collections.abc import Callable
from typing import Any

from orchestrator.emulator.http.dispatch import Call, body_of, named
from orchestrator.emulator.http.router import Response, Router
from orchestrator.emulator.http.tpu_catalog import listed
from orchestrator.emulator.http.tpu_shapes import operation_json, queued_json
from orchestrator.emulator.state import shapes
from orchestrator.emulator.state.errors import ApiError
from orchestrator.emulator.state.operations import Operation
from orchestrator.emulator.state.queued import QueuedResource
from orchestrator.emulator.state.world import LocalCloud


def queued_routes(router: Router, cloud: LocalCloud, location: str) -> None:
    """Register queued resources below *location*."""
    every = location + "/queuedResources"
    calls = QueuedRequests(cloud, alpha=location.startswith("/v2alpha1/"))
    one = every + "/{queued}"
    table: list[tuple[str, str, str, Callable[[Call], Response]]] = [
        ("tpu.queuedResources.reset", "POST", one + ":reset", calls.reset),
        ("tpu.queuedResources.create", "POST", every, calls.create),
        ("tpu.queuedResources.list", "GET", every, calls.list),
        ("tpu.queuedResources.get", "GET", one, calls.get),
        ("tpu.queuedResources.delete", "DELETE", one, calls.delete),
    ]
    for method, verb, pattern, handler in table:
        router.add(verb, pattern, named(method, handler))


class QueuedRequests:
    """Answer the calls on queued resources, of v2 or of v2alpha1, which has some fields more."""

    def __init__(self, cloud: LocalCloud, *, alpha: bool) -> None:
        self._cloud, self._alpha = cloud, alpha

    def create(self, call: Call) -> Response:
        """Answer CreateQueuedResource."""
        query, body = call.request.query, body_of(call.request, shapes.QUEUED)
        unknown = next((key for key in shapes.ONLY_ALPHA if key in body and not self._alpha), "")
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
        """Answer GetQueuedResource."""
        return Response.of(self._shown(self._cloud.queued.get(call.zone, call.name)))

    def delete(self, call: Call) -> Response:
        """Answer DeleteQueuedResource."""
        query = call.request.query
        force, request_id = query.get("force", "").lower() == "true", query.get("requestId", "")
        return self._operation(
            self._cloud.queued.delete(call.zone, call.name, force=force, request_id=request_id)
        )

    def reset(self, call: Call) -> Response:
        """Answer ResetQueuedResource."""
        return self._operation(self._cloud.queued.reset(call.zone, call.name))

    def _shown(self, found: QueuedResource) -> dict[str, Any]:
        shown = queued_json(found)
        return shown if self._alpha else {k: v for k, v in shown.items() if k not in shapes.ONLY_ALPHA}

    def _operation(self, operation: Operation) -> Response:
        return Response.of(operation_json(self._cloud.settings.project, operation))
