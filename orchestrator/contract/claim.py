"""The object that names the winner of a race: written once, by a machine or by the controller."""

import json
from typing import Optional

from orchestrator.contract import limits
from orchestrator.contract.object_names import CLAIM


def claim_name(race: int) -> str:
    """Return where the winner of a race is named."""
    return f"{CLAIM}{race}"


def claim_of(incarnation: int) -> bytes:
    """Return what names *incarnation* as the winner."""
    return json.dumps({"schema": 1, "incarnation": incarnation}).encode()


def named_by(data: bytes) -> Optional[int]:
    """Return the incarnation that a claim names, None for what is no claim; any machine can have written it."""
    try:
        number = json.loads(data)["incarnation"] if len(data) <= limits.CLAIM else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return number if type(number) is int else None
