"""Who has won a race of TPUs: one object in the bucket, which only the first can create."""

from __future__ import annotations

from typing import Optional

from orchestrator.agent.settings import Settings
from orchestrator.agent.storage import SECONDS, Bucket
from orchestrator.contract.claim import claim_name, claim_of, named_by
from orchestrator.contract.machine_errors import PreconditionError, TransientError

WIDEST = 1000
"""Most TPUs that are ever asked for in one race; they are numbered from the race's own number on."""


def winner_of(bucket: Bucket, settings: Settings, seconds: float = SECONDS) -> int:
    """Return the incarnation that has won this machine's race: its own, unless another was named before."""
    name, data = claim_name(settings.race), claim_of(settings.incarnation)
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
    number = named_by(data)
    return number if number is not None and 0 <= number - race < WIDEST else None
