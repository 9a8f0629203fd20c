"""
The other workers of the slice: whether their machines live.
"""

from __future__ import annotations

import time
from typing import Dict, Optional

from .errors import AgentError
from .heartbeat import heartbeat_name
from .parts import Parts

PATIENCE = 2.5
"""Heartbeats for which a living worker may stay silent."""


def silent_peer(parts: Parts, attempt: int) -> Optional[int]:
    """
    Return a worker that reports nothing for PATIENCE heartbeats from now on, None when all do.

    It is asked before a gang gives up: jobs fail for want of a worker whose machine is dead, and that is
    no fault of theirs. It returns early when somebody has begun a later attempt.
    """
    settings = parts.settings
    waited_for = set(range(settings.workers)) - {settings.worker}
    before = {worker: _generation(parts, worker) for worker in waited_for}
    end = time.monotonic() + PATIENCE * settings.heartbeat
    while waited_for and time.monotonic() < end and not parts.orders.overtaken(attempt):
        waited_for = {w for w in waited_for if _generation(parts, w) == before[w]}
        if waited_for:
            parts.orders.wait(settings.poll)
    return min(waited_for, default=None)


def _generation(parts: Parts, worker: int) -> str:
    """
    Return which write of its report a worker has reached; empty when there is none or nobody can say.
    """
    name = heartbeat_name(parts.settings.incarnation, worker)
    try:
        found: Dict[str, object] = parts.bucket.stat(name) or {}
    except AgentError:
        return ""
    return str(found.get("generation", ""))
