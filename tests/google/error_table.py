"""The error table as answers of the clients, and what we make of each row."""

import csv
import json
from importlib import resources
from typing import Any

import requests

from orchestrator.errors import TpuctlError
from orchestrator.google.client_errors import translate, translate_compute, translate_status

# case of error_messages.csv -> (class, code, retry, exit code)
EXPECTED = {
    ("tpu v2", "stockout"): ("CapacityError", "TPU-300", "capacity", 4),
    ("tpu v2", "stockout on start"): ("CapacityError", "TPU-300", "capacity", 4),
    ("tpu v2", "no reserved capacity"): ("CapacityError", "TPU-301", "capacity", 4),
    ("tpu v2", "zone serves only reservations"): ("CapacityError", "TPU-302", "capacity", 4),
    ("tpu v2", "preempted while creating"): ("TransientError", "TPU-405", "transient", 1),
    ("tpu v2", "quota exceeded"): ("QuotaError", "TPU-350", "quota", 4),
    ("tpu v2", "quota exceeded, region form"): ("QuotaError", "TPU-350", "quota", 4),
    ("tpu v2", "type not in zone"): ("UsageError", "TPU-120", "permanent", 2),
    ("tpu v2", "zone without TPU service"): ("UsageError", "TPU-120", "permanent", 2),
    ("tpu v2", "zone hidden from project"): ("UsageError", "TPU-121", "permanent", 2),
    ("tpu v2", "zone hidden from project (older text)"): (
        "MissingPermissionError",
        "TPU-202",
        "permanent",
        3,
    ),
    ("tpu v2", "already exists"): ("ConflictError", "TPU-409", "permanent", 1),
    ("tpu v2", "node not found"): ("NotFoundError", "TPU-404", "permanent", 1),
    ("tpu v2", "flex start unsupported"): ("QuotaError", "TPU-351", "quota", 4),
    ("tpu v2", "api disabled"): ("AuthError", "TPU-203", "permanent", 3),
    ("tpu v2", "permission denied"): ("MissingPermissionError", "TPU-202", "permanent", 3),
    ("tpu v2", "concurrent operation"): ("ConflictError", "TPU-408", "transient", 1),
    ("tpu v2", "transient"): ("TransientError", "TPU-400", "transient", 1),
    ("compute v1", "stockout"): ("CapacityError", "TPU-300", "capacity", 4),
    ("compute v1", "stockout with details"): ("CapacityError", "TPU-300", "capacity", 4),
    ("compute v1", "quota"): ("QuotaError", "TPU-350", "quota", 4),
    ("compute v1", "quota on call"): ("QuotaError", "TPU-350", "quota", 4),
    ("compute v1", "already exists"): ("ConflictError", "TPU-409", "permanent", 1),
    ("compute v1", "not found"): ("NotFoundError", "TPU-404", "permanent", 1),
    ("compute v1", "preempted while creating"): ("TransientError", "TPU-405", "transient", 1),
    ("compute v1", "still stopping"): ("TransientError", "TPU-406", "transient", 1),
    ("compute v1", "stale fingerprint"): ("PreconditionError", "TPU-412", "permanent", 1),
    ("compute v1", "no guest attributes"): ("NotFoundError", "TPU-404", "permanent", 1),
    ("compute v1", "api disabled"): ("AuthError", "TPU-203", "permanent", 3),
    ("compute v1", "permission denied"): ("MissingPermissionError", "TPU-202", "permanent", 3),
    ("compute v1", "v5e machine type refused"): ("UsageError", "TPU-120", "permanent", 2),
    ("compute v1", "service account of a VM that is not stopped"): ("UsageError", "TPU-120", "permanent", 2),
    ("storage v1", "bucket owned by you"): ("ConflictError", "TPU-409", "permanent", 1),
    ("storage v1", "bucket name taken"): ("ConflictError", "TPU-409", "permanent", 1),
    ("storage v1", "bucket missing"): ("NotFoundError", "TPU-404", "permanent", 1),
    ("storage v1", "object missing"): ("NotFoundError", "TPU-404", "permanent", 1),
    ("storage v1", "precondition"): ("PreconditionError", "TPU-412", "permanent", 1),
    ("storage v1", "no access"): ("MissingPermissionError", "TPU-202", "permanent", 3),
    ("storage v1", "bucket not empty"): ("ConflictError", "TPU-409", "permanent", 1),
    ("storage v1", "rate of one object"): ("TransientError", "TPU-402", "transient", 1),
}
PATHS = {
    "tpu v2": "https://tpu.googleapis.com/v2/projects/my-project/locations/z/nodes",
    "compute v1": "https://compute.googleapis.com/compute/v1/projects/my-project/zones/z/instances",
    "storage v1": "https://storage.googleapis.com/storage/v1/b/data",
}
PERMISSIONS = {
    "tpu v2": "tpu.nodes.create", "compute v1": "compute.instances.create", "storage v1": "storage.objects.list",
}  # fmt: skip
RPC_INFO = "type.googleapis.com/google.rpc.ErrorInfo"


def table() -> list[dict[str, str]]:
    """Return the rows of the error table."""
    text = resources.files("orchestrator").joinpath("data/error_messages.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(line for line in text.splitlines() if not line.startswith("#"))
    return [
        {**row, "message": row["message"].replace("{permission}", PERMISSIONS[row["api"]])} for row in rows
    ]


def response(status: int, body: bytes, url: str = PATHS["tpu v2"]) -> requests.Response:
    """Build an answer as requests gives it to the client."""
    answer = requests.Response()
    answer.status_code, answer._content, answer.url = status, body, url
    answer.request = requests.Request("POST", url).prepare()
    return answer


def call_answer(row: dict[str, str]) -> requests.Response:
    """Build the HTTP answer of a row: TPU errors carry status and details, the others a list of errors."""
    error: dict[str, Any] = {"code": int(row["http_status"]), "message": row["message"]}
    if row["api"] == "tpu v2":
        error["status"] = row["code"]
        if row["details"].startswith("["):
            error["details"] = json.loads(row["details"])
        elif row["reason"]:
            error["details"] = [{"@type": RPC_INFO, "reason": row["reason"], "metadata": {}}]
    else:
        error["errors"] = [{"message": row["message"], "domain": "global", "reason": row["reason"]}]
    return response(error["code"], json.dumps({"error": error}).encode(), PATHS[row["api"]])


def ours(row: dict[str, str]) -> TpuctlError:
    """Translate a row, through the client's own exception where there is one."""
    from google.api_core import exceptions

    if row["where"] == "lro":
        return translate_status(int(row["code"]), row["message"], what="create")
    if row["where"] == "op.error":
        return translate_compute(row["code"], row["message"], int(row["http_status"]), what="create")
    error = exceptions.from_http_response(call_answer(row))
    assert type(error).__name__ == row["python_exception"]
    return translate(error, what="create")


def shape(error: TpuctlError) -> tuple[str, str, str, int]:
    """Return what the loop and the user read of an error."""
    return type(error).__name__, error.code, error.retry.value, error.exit_code
