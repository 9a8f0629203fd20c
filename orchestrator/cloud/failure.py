"""
One shape for every refusal: HTTP answers, google.rpc statuses and compute operation errors.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

RPC_NAMES = {
    1: "CANCELLED",
    2: "UNKNOWN",
    3: "INVALID_ARGUMENT",
    4: "DEADLINE_EXCEEDED",
    5: "NOT_FOUND",
    6: "ALREADY_EXISTS",
    7: "PERMISSION_DENIED",
    8: "RESOURCE_EXHAUSTED",
    9: "FAILED_PRECONDITION",
    10: "ABORTED",
    11: "OUT_OF_RANGE",
    12: "UNIMPLEMENTED",
    13: "INTERNAL",
    14: "UNAVAILABLE",
    15: "DATA_LOSS",
    16: "UNAUTHENTICATED",
}
HTTP_NAMES = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ALREADY_EXISTS",
    412: "CONDITION_NOT_MET",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_SERVICE_BY_PATH = (
    ("/compute/", "compute.googleapis.com"),
    ("/storage/", "storage.googleapis.com"),
    ("/v2/", "tpu.googleapis.com"),
)


@dataclass(frozen=True)
class Failure:
    """
    Hold what is known of a refusal.

    *name* is the google.rpc name of the status, *reasons* the finer words of the API, *details* the
    google.rpc detail objects as JSON. *in_operation* tells the error of an operation from the error
    of a call. *structured* is False when the answer did not have the form of a Google error.
    """

    name: str
    reasons: tuple[str, ...] = ()
    message: str = ""
    details: tuple[Mapping[str, Any], ...] = ()
    in_operation: bool = False
    structured: bool = True
    url: str = ""

    def detail(self, kind: str) -> Mapping[str, Any] | None:
        """
        Return the first detail of a type such as `QuotaFailure`, or None.
        """
        return next((d for d in self.details if str(d.get("@type", "")).endswith(f".{kind}")), None)

    @property
    def metadata(self) -> Mapping[str, str]:
        """
        Return the metadata of the ErrorInfo detail.
        """
        return (self.detail("ErrorInfo") or {}).get("metadata") or {}

    @property
    def service(self) -> str:
        """
        Return the API that answered, for example tpu.googleapis.com, or "" when nothing tells.
        """
        path = urlsplit(self.url).path
        by_path = next((service for part, service in _SERVICE_BY_PATH if part in path), "")
        return self.metadata.get("service", "") or by_path

    @property
    def project(self) -> str:
        """
        Return the project that the answer is about, or "".
        """
        for text in (self.metadata.get("consumer", ""), urlsplit(self.url).path):
            match = re.search(r"projects/([^/]+)", text)
            if match:
                return match[1]
        return ""


def of_call(error: Any) -> Failure:
    """
    Read a `GoogleAPICallError`: the JSON of its answer first, its own fields where there is none.
    """
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
    """
    Read the google.rpc.Status inside a long-running operation.
    """
    found = tuple(_as_json(d) for d in details)
    failure = Failure(RPC_NAMES.get(code, ""), message=message, details=found, in_operation=True)
    reason = str((failure.detail("ErrorInfo") or {}).get("reason", ""))
    return replace(failure, reasons=(reason,))


def of_compute(code: str, message: str, http_status: int) -> Failure:
    """
    Read one entry of a compute operation's `error.errors` with the operation's httpErrorStatusCode.
    """
    return Failure(HTTP_NAMES.get(http_status, ""), reasons=(code,), message=message, in_operation=True)


def _error_body(response: Any) -> Mapping[str, Any]:
    """
    Return the `error` object of a Google answer, or {} when the answer has no such form.
    """
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
    """
    Return a detail as JSON with its "@type"; a type that we cannot read keeps its name only.
    """
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
