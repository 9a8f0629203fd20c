"""The object that names the winner of a race: written once, by a machine or by the controller."""

import json
from typing import Optional

from orchestrator.contract import limits
from orchestrator.contract.json_values import json_value, whole_number
from orchestrator.contract.object_names import CLAIM


def claim_name(race: int) -> str:
    """Return where the winner of a race is named."""
    return f"{CLAIM}{race}"


def claim_of(incarnation: int) -> bytes:
    """Return what names *incarnation* as the winner."""
    return json.dumps({"schema": 1, "incarnation": incarnation}).encode()


def named_by(data: bytes) -> Optional[int]:
    """Return the incarnation that a claim names, None for what is no claim; any machine can have written it."""
    value = json_value(data) if len(data) <= limits.CLAIM else None
    # `true` is an int in Python, and no incarnation.
    return whole_number((value or {}).get("incarnation"))
