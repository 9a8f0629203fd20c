"""
What a bucket's policy allows an account: roles of Cloud Storage, with conditions.

Only the policy of the bucket itself is looked at. An account that it does not name is let in, as one with a
role on the whole project is: the local cloud has no policy of the project.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from orchestrator.emulator.state.storage.conditions import compiled, holds
from orchestrator.emulator.state.storage.errors import denied, invalid
from orchestrator.emulator.state.storage.values import Bucket, Fields

_READS = frozenset({"storage.objects.get", "storage.objects.list"})
_CREATES = frozenset({"storage.objects.create"})
_OBJECTS = _READS | _CREATES | {"storage.objects.update", "storage.objects.delete"}
_BUCKETS = frozenset(
    f"storage.buckets.{verb}" for verb in ("get", "update", "delete", "getIamPolicy", "setIamPolicy")
)
ROLES: Mapping[str, frozenset[str]] = {
    "roles/storage.legacyBucketReader": frozenset({"storage.buckets.get", "storage.objects.list"}),
    "roles/storage.objectViewer": _READS,
    "roles/storage.objectCreator": _CREATES,
    "roles/storage.objectUser": _OBJECTS,
    "roles/storage.objectAdmin": _OBJECTS,
    "roles/storage.admin": _OBJECTS | _BUCKETS,
}
"""Roles and what of their permissions the local cloud asks for (docs/facts.md 3.2)."""


def check_policy(policy: Fields, *, uniform: bool) -> None:
    """Raise 400 for a policy whose conditions would not count."""
    bindings = policy.get("bindings", [])
    if not isinstance(bindings, list) or not all(isinstance(binding, dict) for binding in bindings):
        raise invalid("bindings must be a list of objects.")
    expressions = [text for binding in bindings if (text := _expression(binding))]
    if expressions and (policy.get("version") != 3 or not uniform):
        raise invalid("Conditions need policy version 3 and uniform bucket-level access.")
    for text in expressions:
        compiled(text)


def check_access(bucket: Bucket, in_force: Fields, email: str, permission: str, name: str = "") -> None:
    """
    Raise 403 unless the account *email* has the permission on the object *name*, or on the bucket itself.

    The policy *in_force* decides, which may be an older one of the bucket.
    """
    member = f"serviceAccount:{email}"
    newest, mine = _of(bucket.policy, member), _of(in_force, member)
    resource = f"projects/_/buckets/{bucket.name}"
    values = {
        "resource.name": f"{resource}/objects/{name}" if name else resource,
        "resource.type": f"storage.googleapis.com/{'Object' if name else 'Bucket'}",
        "resource.service": "storage.googleapis.com",
    }
    if (newest or mine) and not any(
        permission in ROLES.get(binding["role"], ()) and _applies(binding, values) for binding in mine
    ):
        raise denied(email, permission, on="object" if name else "bucket")


def _of(policy: Fields, member: str) -> Sequence[Fields]:
    return [binding for binding in policy.get("bindings", []) if member in binding.get("members", ())]


def _applies(binding: Fields, values: Mapping[str, str]) -> bool:
    """Say whether a binding holds for a resource; one whose condition is empty holds for none."""
    return "condition" not in binding or (bool(text := _expression(binding)) and holds(text, values))


def _expression(binding: Mapping[str, Any]) -> str:
    condition = binding.get("condition")
    return str(condition.get("expression", "")) if isinstance(condition, dict) else ""
