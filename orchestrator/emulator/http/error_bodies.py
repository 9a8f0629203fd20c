"""Build the error bodies of each API."""

from typing import Any

from orchestrator.emulator.http.router import Request, Response
from orchestrator.emulator.state.api_errors import ApiError, OperationError

_USAGE_LIMITS = ("quotaExceeded", "accessNotConfigured", "rateLimitExceeded")
_STATUSES = {
    "accessNotConfigured": "PERMISSION_DENIED",
    "forbidden": "PERMISSION_DENIED",
    "notFound": "NOT_FOUND",
    "alreadyExists": "ALREADY_EXISTS",
    "invalid": "INVALID_ARGUMENT",
}


def error_response(request: Request, error: ApiError) -> Response:
    """Return the answer for *error* in the form of the API that *request* is for."""
    if error.status == 304:
        return Response(304)  # has no body
    return Response.of({"error": error_body(request.path, error)}, error.status)


def error_body(path: str, error: ApiError) -> dict[str, Any]:
    """Return the `error` object of the answer to a request for *path*."""
    if path.startswith(("/v1/", "/v2/", "/v2alpha1/")):
        body = {"code": error.status, "message": error.message, "status": error.reason}
    else:
        domain = "usageLimits" if error.reason in _USAGE_LIMITS else "global"
        item = {"message": error.message, "domain": domain, "reason": error.reason}
        body = {"code": error.status, "message": error.message, "errors": [item]}
        if path.startswith("/compute/") and error.reason in _STATUSES:
            body["status"] = _STATUSES[error.reason]
    return {**body, "details": list(error.details)} if error.details else body


def plain_error(request: Request, status: int, reason: str, message: str) -> Response:
    """Return an error answer that does not come from a model."""
    return error_response(request, ApiError(status, reason, message))


def tpu_status(error: OperationError) -> dict[str, Any]:
    """Return the google.rpc.Status of a TPU operation's error."""
    status: dict[str, Any] = {"code": error.code, "message": error.message}
    return {**status, "details": list(error.details)} if error.details else status


def compute_failure(error: OperationError) -> dict[str, Any]:
    item: dict[str, Any] = {"code": error.code, "message": error.message}
    if error.details:
        item["errorDetails"] = list(error.details)
    return {
        "error": {"errors": [item]},
        "httpErrorStatusCode": error.http_status,
        "httpErrorMessage": error.http_message,
    }
