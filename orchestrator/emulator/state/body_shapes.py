"""Check the JSON types of request fields before anything is changed."""

from collections.abc import Mapping
from typing import Any

Shape = Mapping[str, Any]
TEXTS: Shape = {"*": str}
NODE: Shape = {
    "description": str,
    "acceleratorType": str,
    "acceleratorConfig": {"topology": str},
    "runtimeVersion": str,
    "networkConfig": {},
    "networkConfigs": [{}],
    "serviceAccount": {"email": str, "scope": [str]},
    "schedulingConfig": {"*": bool},
    "labels": TEXTS,
    "metadata": TEXTS,
    "tags": [str],
    "dataDisks": [{"sourceDisk": str}],
    "shieldedInstanceConfig": {},
}
QUEUED: Shape = {
    "tpu": {
        "nodeSpec": [
            {
                "parent": str,
                "nodeId": str,
                "multisliceParams": {"nodeCount": int, "nodeIdPrefix": str},
                "node": NODE,
            }
        ]
    },
    "spot": {},
    "guaranteed": {"minDuration": str},
    "queueingPolicy": {
        "validUntilDuration": str,
        "validUntilTime": str,
        "validAfterDuration": str,
        "validAfterTime": str,
        "validInterval": TEXTS,
    },
    "reservationName": str,
    "provisioningModel": str,
    "runDuration": {"maxRunDuration": str, "terminationTime": str},
}
ONLY_ALPHA = ("provisioningModel", "runDuration")
"""Fields of a queued resource in v2alpha1 but not v2 (discovery documents of 2026-10-01)."""
METADATA: Shape = {"items": [{"key": str, "value": str}], "fingerprint": str}
SCHEDULING: Shape = {"maxRunDuration": {}, "terminationTime": str, "provisioningModel": str}
INSTANCE: Shape = {
    "name": str,
    "machineType": str,
    "labels": TEXTS,
    "metadata": METADATA,
    "tags": {"items": [str]},
    "scheduling": SCHEDULING,
    "serviceAccounts": [{"email": str, "scopes": [str]}],
    "networkInterfaces": [{"network": str, "subnetwork": str}],
    "shieldedInstanceConfig": {},
    "disks": [
        {
            "initializeParams": {"sourceImage": str, "diskType": str, "diskName": str, "labels": TEXTS},
            "source": str,
        }
    ],
}
SEVERAL: Shape = {
    "count": str,
    "minCount": str,
    "namePattern": str,
    "perInstanceProperties": {"*": {"name": str}},
    "instanceProperties": {key: value for key, value in INSTANCE.items() if key != "name"},
}
DISK: Shape = {"name": str, "type": str, "labels": TEXTS}
LABELS: Shape = {"labels": TEXTS, "labelFingerprint": str}
SERVICE_ACCOUNT: Shape = {"email": str, "scopes": [str]}
TAGS: Shape = {"items": [str], "fingerprint": str}
FIREWALL: Shape = {"name": str, "allowed": [{}], "denied": [{}], "sourceRanges": [str]}


def check_shape(value: Any, shape: Any, path: str = "") -> None:
    """
    Raise ValueError, naming the field, if the JSON type of *value* differs from *shape*.

    A shape is a type, a list with the shape of its items, or a mapping of field names; `*` stands for every
    field. Fields that the shape does not name are not checked.
    """
    expected = type(shape) if isinstance(shape, dict | list) else shape
    if not isinstance(value, expected):
        raise ValueError(f"field '{path or 'body'}' is not a {_JSON_NAMES[expected]}")  # noqa: TRY004 - dispatch turns ValueError into 400
    if isinstance(value, list):
        for index, item in enumerate(value):
            check_shape(item, shape[0], f"{path}[{index}]")
    elif isinstance(value, dict) and isinstance(shape, dict):
        for key, item in value.items():
            inner = shape.get(key, shape.get("*"))
            if inner is not None:
                check_shape(item, inner, f"{path}.{key}".lstrip("."))


def with_lists(value: Any, shape: Any) -> Any:
    """
    Return *value* with a single object made a list where *shape* has a list of objects.

    The JSON parser of Google's RPC services accepts one value for a repeated field, on which SkyPilot 0.14
    relies.
    """
    if isinstance(shape, list) and isinstance(value, dict) and isinstance(shape[0], dict):
        value = [value]
    if isinstance(value, list) and isinstance(shape, list):
        return [with_lists(item, shape[0]) for item in value]
    if isinstance(value, dict) and isinstance(shape, dict):
        return {key: with_lists(item, shape.get(key, shape.get("*"))) for key, item in value.items()}
    return value


_JSON_NAMES = {int: "number", str: "string", dict: "JSON object", list: "list", bool: "boolean"}
