"""Define the object that names the winner of a race; it is written once, by a machine or by the controller."""

import json
from typing import Optional

from orchestrator.contract.bucket import limits
from orchestrator.contract.bucket.object_names import CLAIM
from orchestrator.contract.json_values import json_value, whole_number


def claim_name(race: int) -> str:
    """Return the name of the object for round *race*."""
    return f"{CLAIM}{race}"


def claim_of(incarnation: int) -> bytes:
    """Return the object's content for the winner *incarnation*."""
    return json.dumps({"schema": 1, "incarnation": incarnation}).encode()


def named_by(data: bytes) -> Optional[int]:
    """Return the incarnation that a claim names, None if invalid; any machine can have written it."""
    value = json_value(data) if len(data) <= limits.CLAIM else None
    # bool is an int in Python: `true` would count as incarnation 1.
    return whole_number((value or {}).get("incarnation"))
