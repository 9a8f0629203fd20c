"""Who has won a race of TPUs: one object in the bucket, which only the first can create."""

from __future__ import annotations

import json
from typing import Optional

from orchestrator.agent.settings import Settings
from orchestrator.agent.storage import SECONDS, Bucket
from orchestrator.contract.machine_errors import PreconditionError, TransientError
from orchestrator.contract.object_names import CLAIM

LARGEST = 1 << 10
"""Most bytes of a claim."""
WIDEST = 1000
"""Most TPUs that are ever asked for in one race; they are numbered from the race's own number on."""


def winner_of(bucket: Bucket, settings: Settings, seconds: float = SECONDS) -> int:
    """Return the incarnation that has won this machine's race: its own, unless another was named before."""
    name = f"{CLAIM}{settings.race}"
    data = json.dumps({"schema": 1, "incarnation": settings.incarnation}).encode()
    try:
        bucket.write(name, data, 0, seconds)
    except PreconditionError:
        held = bucket.read(name, seconds)
        number = named(held.data if held is not None else b"", settings.race)
        if number is None:
            raise TransientError(f"{name} names no TPU of this race") from None
        return number
    return settings.incarnation


def named(data: bytes, race: int) -> Optional[int]:
    """Return the incarnation that a claim names, None where it is no TPU of the race."""
    try:
        number = json.loads(data)["incarnation"] if len(data) <= LARGEST else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return number if type(number) is int and 0 <= number - race < WIDEST else None
