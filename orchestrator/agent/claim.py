"""
Who has won a race of TPUs: one object in the bucket, which only the first can create.
"""

from __future__ import annotations

import json

from .errors import PreconditionError, TransientError
from .settings import Settings
from .storage import SECONDS, Bucket

CLAIM = ".tpuctl/claim/"


def winner_of(bucket: Bucket, settings: Settings, seconds: float = SECONDS) -> int:
    """
    Return the incarnation that has won this machine's race: its own, unless another was named before.
    """
    name = f"{CLAIM}{settings.race}"
    data = json.dumps({"schema": 1, "incarnation": settings.incarnation}).encode()
    try:
        bucket.write(name, data, 0, seconds)
    except PreconditionError:
        held = bucket.read(name, seconds)
        try:
            return int(json.loads(held.data if held is not None else b"")["incarnation"])
        except (ValueError, KeyError, TypeError) as error:
            raise TransientError(f"{name} cannot be read: {error}") from error
    return settings.incarnation
