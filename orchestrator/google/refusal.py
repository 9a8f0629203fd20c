"""Give every refusal one shape: HTTP answers, google.rpc statuses and compute operation errors."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

RPC_NAMES = dict(enumerate((
    "CANCELLED", "UNKNOWN", "INVALID_ARGUMENT", "DEADLINE_EXCEEDED", "NOT_FOUND", "ALREADY_EXISTS",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "FAILED_PRECONDITION", "ABORTED", "OUT_OF_RANGE",
    "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS", "UNAUTHENTICATED",
), start=1))  # fmt: skip
"""Names of google.rpc.Code by number."""
HTTP_NAMES = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED", 409: "ALREADY_EXISTS", 412: "CONDITION_NOT_MET", 429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED", 500: "INTERNAL", 501: "UNIMPLEMENTED", 502: "UNAVAILABLE", 503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}  # fmt: skip
_SERVICE_BY_PATH = (
    ("/compute/", "compute.googleapis.com"),
    ("/storage/", "storage.googleapis.com"),
    ("/v2/", "tpu.googleapis.com"),
    ("/v1/", "secretmanager.googleapis.com"),
)

GOOGLES_OWN = frozenset({"764086051850", "32555940559"})
"""Project numbers of gcloud's own OAuth clients, which user credentials without a project are charged to."""
_ZONE = re.compile(r"/zones/([^/]+)")
_PROJECT = re.compile(r"projects/([^/]+)")
_CONSTRAINT = re.compile(r"\b(?:c|customC)onstraints/([A-Za-z]+\.[A-Za-z0-9]+)")


@dataclass(frozen=True)
class GoogleRefusal:
    """
    A refusal of a Google API, in one shape.

    *name* is the google.rpc name of the status, *reasons* the API's finer words, *details* the google.rpc
    detail objects as JSON. *in_operation* distinguishes the error of an operation from that of a call.
    *structured* is False if the answer did not have the form of a Google error.
    """

    name: str
    reasons: tuple[str, ...] = ()
    message: str = ""
    details: tuple[Mapping[str, Any], ...] = ()
    in_operation: bool = False
    structured: bool = True
    url: str = ""

    def detail(self, kind: str) -> Mapping[str, Any] | None:
        """Return the first detail of a type such as `QuotaFailure`, or None."""
        return next((d for d in self.details if str(d.get("@type", "")).endswith(f".{kind}")), None)

    @property
    def metadata(self) -> Mapping[str, str]:
        """Return the metadata of the ErrorInfo detail; empty without one."""
        return (self.detail("ErrorInfo") or {}).get("metadata") or {}

    @property
    def service(self) -> str:
        """Return the API that answered, for example tpu.googleapis.com, or "" if not known."""
        path = urlsplit(self.url).path
        by_path = next((service for part, service in _SERVICE_BY_PATH if part in path), "")
        return self.metadata.get("service", "") or by_path

    @property
    def project(self) -> str:
        """Return the project that the answer names, or ""."""
        return (self._consumer if not self.charged_elsewhere else "") or self._asked

    @property
    def charged_elsewhere(self) -> bool:
        """Return whether the call was charged to a project of Google's, in which a user cannot enable an API."""
        return self._consumer in GOOGLES_OWN

    @property
    def zone(self) -> str:
        """Return the zone in the URL of a Compute Engine call, or ""."""
        match = _ZONE.search(urlsplit(self.url).path)
        return match[1] if match else ""

    @property
    def is_local(self) -> bool:
        """Return whether this computer has answered, that is a local cloud, and not Google."""
        host = urlsplit(self.url).hostname or ""
        return host == "localhost" or host.startswith("127.")

    @property
    def of_network(self) -> bool:
        """Return whether the request was for a network, and not for a machine on one."""
        return "networks/" in urlsplit(self.url).path

    @property
    def constraint(self) -> str:
        """Return the organisation's constraint that the text names, such as compute.requireOsLogin, or ""."""
        # Google has no field for it; it is shown in a hint.
        match = _CONSTRAINT.search(self.message)
        return match[1] if match else ""

    @property
    def _consumer(self) -> str:
        match = _PROJECT.search(self.metadata.get("consumer", ""))
        return match[1] if match else ""

    @property
    def _asked(self) -> str:
        match = _PROJECT.search(urlsplit(self.url).path)
        return match[1] if match else ""


def of_status(code: int, message: str, details: Iterable[Mapping[str, Any]] = ()) -> GoogleRefusal:
    """Convert the google.rpc.Status inside a long-running operation."""
    refusal = GoogleRefusal(
        RPC_NAMES.get(code, ""), message=message, details=tuple(details), in_operation=True
    )
    reason = str((refusal.detail("ErrorInfo") or {}).get("reason", ""))
    return replace(refusal, reasons=(reason,))


def of_compute(code: str, message: str, http_status: int) -> GoogleRefusal:
    """Convert one entry of a compute operation's `error.errors` with the operation's httpErrorStatusCode."""
    return GoogleRefusal(HTTP_NAMES.get(http_status, ""), reasons=(code,), message=message, in_operation=True)
