"""Handle every request: advance time, apply faults, call the handler."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from orchestrator.emulator.http.error_bodies import error_response, plain_error
from orchestrator.emulator.http.router import Handler, Request, Response, Router
from orchestrator.emulator.state.api_errors import ApiError, compute_case, tpu_case
from orchestrator.emulator.state.body_shapes import Shape, check_shape, with_lists
from orchestrator.emulator.state.call_gate import admitted, admitted_storage
from orchestrator.emulator.state.kernel import CallTarget
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.values import methods

_RPC = ("/v1/", "/v2/", "/v2alpha1/")  # APIs whose errors are google.rpc.Status
_SITE = b"https://www.googleapis.com/compute/v1/"
_NAMES = ("name", "node", "instance", "disk", "firewall", "operation", "queued")


@dataclass(frozen=True)
class ApiCall:
    """One call of an API method; *name* is the resource named in the path."""

    request: Request
    project: str = ""
    zone: str = ""
    region: str = ""
    name: str = ""


def dispatch(router: Router, cloud: LocalCloud, request: Request) -> Response:
    """
    Answer *request*: find the route, advance time, apply the fault in force, build error bodies.

    A handler's `__name__` is its method (`tpu.nodes.create`). Safe from any thread: TPU and Compute handlers
    run under the cloud's lock, others lock for themselves, and batches call this function again.
    """
    found = router.find(request)
    if found is None:
        reason = "NOT_FOUND" if request.path.startswith(_RPC) else "notFound"
        text = f"Not found: the local cloud does not serve {request.method} {request.path}"
        return plain_error(request, 404, reason, text)
    handler, parts = found
    method = getattr(handler, "__name__", "")

    def call() -> Response:
        return handler(request, **parts)

    try:
        if method in methods.TPU | methods.COMPUTE:
            return _answer(cloud, request, method, parts, call)
        return admitted_storage(cloud, method, call) if method in methods.STORAGE else call()
    except ApiError as error:
        return error_response(request, error)
    except ValueError as error:
        reason = "INVALID_ARGUMENT" if request.path.startswith(_RPC) else "invalid"
        return plain_error(request, 400, reason, f"Invalid value: {error}")


def _answer(
    cloud: LocalCloud, request: Request, method: str, parts: dict[str, str], call: Callable[[], Response]
) -> Response:
    # Without the lock, because reading a large body need not block others.
    target = call_target_of(method, request, parts)

    def checked() -> Response:
        _check_project(cloud, method, target, parts)
        return call()

    return _linked(request, admitted(cloud, method, target, checked))


def _linked(request: Request, response: Response) -> Response:
    """Rewrite links in a Compute answer to the address that the client used, as some clients follow them."""
    host = request.headers.get("host", "")
    if not request.path.startswith("/compute/") or host.partition(":")[0] not in ("127.0.0.1", "localhost"):
        return response
    here = f"http://{host}/compute/v1/".encode()
    return replace(response, body=response.body.replace(_SITE, here))


def call_target_of(method: str, request: Request, parts: dict[str, str]) -> CallTarget:
    """Return the zone and the name of the resource that a request is about."""
    name = next((parts[key] for key in _NAMES if key in parts), "")
    if method == "tpu.nodes.create":
        name = request.query.get("nodeId", "")
    elif method == "tpu.queuedResources.create":
        name = request.query.get("queuedResourceId", "")
    elif method.endswith(".insert"):
        name = str(body_of(request).get("name", ""))
    return CallTarget(parts.get("zone", ""), name)


def _check_project(cloud: LocalCloud, method: str, target: CallTarget, parts: dict[str, Any]) -> None:
    settings = cloud.settings
    known = (settings.project, str(settings.project_number))
    if parts.get("project", settings.project) in known or method.startswith("compute.images."):
        return
    table = tpu_case if method.startswith("tpu.") else compute_case
    values = cloud.kernel.values(target, permission=methods.permission_of(method), project=parts["project"])
    raise table("permission denied").error(**values)


def body_of(request: Request, shape: Shape | None = None) -> dict[str, Any]:
    """
    Return the JSON body without explicit nulls, which mean "absent".

    Raise ValueError if it is no JSON object or its fields do not have the types of *shape*.
    """
    try:
        body = _without_nulls(request.json())
        if request.path.startswith(_RPC):
            body = with_lists(body, dict(shape or {}))
        check_shape(body, dict(shape or {}))
    except RecursionError:
        raise ValueError("the body is nested too deeply") from None
    known: dict[str, Any] = body
    return known


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def named(method: str, handler: Callable[[ApiCall], Response]) -> Handler:
    """Return a handler for the router, named *method*, that passes an ApiCall to *handler*."""

    def answer(request: Request, **parts: str) -> Response:
        name = next((parts[key] for key in _NAMES if key in parts), "")
        known = {key: parts.get(key, "") for key in ("project", "zone", "region")}
        return handler(ApiCall(request, name=name, **known))

    answer.__name__ = method
    return answer
