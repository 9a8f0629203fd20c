"""Build Google's errors as values from data/error_messages.csv and data/secret_errors.csv."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

from orchestrator.emulator.state.tables import rows

Details = tuple[Mapping[str, Any], ...]
_TYPE = "type.googleapis.com/google.rpc."
_BY_CODE = ("tpu v2", "secretmanager v1")
_HTTP_MESSAGES = {400: "BAD REQUEST", 403: "FORBIDDEN", 404: "NOT FOUND", 503: "SERVICE UNAVAILABLE"}


class ApiError(Exception):
    """
    An error of the call itself, as opposed to one in an operation.

    *status* is the HTTP code. *reason* is the canonical code (`NOT_FOUND`) for TPU and secrets,
    `errors[].reason` (`notFound`) for Compute. *details* are google.rpc messages as JSON objects.
    """

    def __init__(self, status: int, reason: str, message: str, details: Details = ()) -> None:
        super().__init__(message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details = details


@dataclass(frozen=True)
class OperationError:
    """
    An error inside an operation.

    *code* is a google.rpc.Code number (TPU) or a name such as `QUOTA_EXCEEDED` (Compute); *http_status* and
    *http_message* exist for Compute only.
    """

    code: int | str
    message: str
    http_status: int = 0
    http_message: str = ""
    details: Details = ()


class ErrorArrival(Enum):
    """Say where an error arrives, as the table writes it: a TPU's operation has another form than a Compute one."""

    CALL = "call"
    TPU_OPERATION = "lro"
    COMPUTE_OPERATION = "op.error"


@dataclass(frozen=True)
class ErrorCase:
    """One row of the error table; *details* are google.rpc messages with placeholders."""

    api: str
    name: str
    where: ErrorArrival
    http_status: int
    code: str
    reason: str
    message: str
    details: Details

    def error(self, **values: object) -> ApiError:
        """Return the error of a call; placeholders without a value become ""."""
        message = fill(self.message, values)
        reason = self.code if self.api in _BY_CODE else self.reason
        return ApiError(self.http_status, reason, message, _details(self, message, values))

    def operation_error(self, **values: object) -> OperationError:
        """Return the error of an operation; placeholders without a value become ""."""
        message = fill(self.message, values)
        if self.where is ErrorArrival.TPU_OPERATION:
            return OperationError(int(self.code), message)
        details = _quota_info(values) if self.code == "QUOTA_EXCEEDED" else ()
        return OperationError(self.code, message, self.http_status, _HTTP_MESSAGES[self.http_status], details)


@cache
def cases() -> Mapping[tuple[str, str], ErrorCase]:
    """Return the error table by API (`tpu v2`, `compute v1`, `storage v1`) and case name."""
    table = {}
    for row in (*rows("error_messages.csv"), *rows("secret_errors.csv")):
        # Cells that are no JSON are notes for people.
        details = tuple(json.loads(row["details"])) if row["details"].startswith("[") else ()
        case = ErrorCase(
            row["api"], row["case"], ErrorArrival(row["where"]), int(row["http_status"] or 0), row["code"],
            row["reason"], row["message"], details,
        )  # fmt: skip
        table[case.api, case.name] = case
    return table


def tpu_case(name: str) -> ErrorCase:
    """Return the TPU case *name*. Raise KeyError if the table has none."""
    return cases()["tpu v2", name]


def compute_case(name: str) -> ErrorCase:
    """Return the Compute case *name*. Raise KeyError if the table has none."""
    return cases()["compute v1", name]


def fill(text: str, values: Mapping[str, object]) -> str:
    """Replace `{name}` by its value, "" without one."""
    return re.sub(r"\{(\w+)\}", lambda found: str(values.get(found[1], "")), text)


def _details(case: ErrorCase, message: str, values: Mapping[str, object]) -> Details:
    url = "https://console.developers.google.com/apis/api/tpu.googleapis.com/overview"
    known = {**values, "same": message, "activationUrl": f"{url}?project={values.get('project', '')}"}
    if case.details:
        return tuple(_filled(list(case.details), known))
    if case.api in _BY_CODE and case.reason == "IAM_PERMISSION_DENIED":
        metadata = {"permission": values.get("permission", ""), "resource": values.get("resource", "")}
        return (_error_info(case.reason, "iam.googleapis.com", metadata),)
    if case.api == "compute v1" and case.reason == "accessNotConfigured":
        return (_error_info("SERVICE_DISABLED", "googleapis.com", {"service": "compute.googleapis.com"}),)
    return ()


def _filled(value: Any, values: Mapping[str, object]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_filled(item, values) for item in value]
    return fill(value, values) if isinstance(value, str) else value


def _error_info(reason: str, domain: str, metadata: Mapping[str, object]) -> Mapping[str, Any]:
    return {"@type": _TYPE + "ErrorInfo", "reason": reason, "domain": domain, "metadata": metadata}


def _quota_info(values: Mapping[str, object]) -> Details:
    info = {
        "metricName": "compute.googleapis.com/" + str(values.get("metric", "")).lower(),
        "limitName": f"{values.get('metric', '')}-per-project-region",
        "limit": values.get("n", 0),
        "dimensions": {"region": values.get("region", "")},
    }
    return ({"quotaInfo": info},)


def invalid(text: str) -> ApiError:
    """Return Compute Engine's 400 for a request with wrong values."""
    return ApiError(400, "invalid", text)


def missing(path: str) -> ApiError:
    """Return Compute Engine's 404 for the resource *path* (from `projects/` on)."""
    return ApiError(404, "notFound", f"The resource '{path}' was not found")
