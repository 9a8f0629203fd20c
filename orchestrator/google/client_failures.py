"""Read what the official clients raise and return as refusals."""

from collections.abc import Iterable, Mapping
from typing import Any

from orchestrator.google import refusal
from orchestrator.google.refusal import HTTP_NAMES, Failure


def of_call(error: Any) -> Failure:
    """Read a `GoogleAPICallError`: the JSON of its answer first, its own fields where there is none."""
    response = getattr(error, "response", None)
    body = _error_body(response)
    details = tuple(_as_json(d) for d in body.get("details") or error.details)
    errors = body.get("errors") or error.errors
    info = next((d for d in details if str(d.get("@type", "")).endswith(".ErrorInfo")), {})
    words = [info.get("reason"), error.reason, *(e.get("reason") for e in errors if isinstance(e, Mapping))]
    grpc_code = getattr(error.grpc_status_code, "name", "")
    return Failure(
        name=body.get("status") or grpc_code or HTTP_NAMES.get(int(error.code or 0), ""),
        reasons=tuple(str(word) for word in words if word),
        message=str(body.get("message") or error.message),
        details=details,
        in_operation=bool(grpc_code),
        structured=bool(body) or response is None,
        url=str(getattr(getattr(response, "request", None), "url", None) or ""),
    )


def of_status(code: int, message: str, details: Iterable[Any] = ()) -> Failure:
    """Read the google.rpc.Status inside a long-running operation."""
    return refusal.of_status(code, message, [_as_json(detail) for detail in details])


def _error_body(response: Any) -> Mapping[str, Any]:
    """Return the `error` object of a Google answer, or {} when the answer has no such form."""
    try:
        payload = response.json()
    except (AttributeError, ValueError, RuntimeError):
        # RuntimeError: the body of a streamed answer was consumed by the client already.
        return {}
    if isinstance(payload, list):
        payload = payload[0] if payload else {}
    error = payload.get("error") if isinstance(payload, Mapping) else None
    return error if isinstance(error, Mapping) else {}


def _as_json(detail: Any) -> Mapping[str, Any]:
    """Return a detail as JSON with its "@type"; a type that we cannot read keeps its name only."""
    if isinstance(detail, Mapping):
        return detail
    from google.protobuf import json_format
    from google.rpc import error_details_pb2  # noqa: F401  (registers the types that Any may hold)

    try:
        body = json_format.MessageToDict(detail)
    except (TypeError, ValueError, AttributeError):
        return {"@type": getattr(detail, "type_url", type(detail).__name__)}
    own_name = getattr(getattr(detail, "DESCRIPTOR", None), "full_name", "")
    return {"@type": f"type.googleapis.com/{own_name}", **body}
