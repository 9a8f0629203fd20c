"""The other workers of the slice: whether their machines live."""

from __future__ import annotations

import contextlib
import time
from functools import partial
from typing import Dict, Optional

from orchestrator.agent.gang import Attempt
from orchestrator.agent.heartbeat import heartbeat_name
from orchestrator.agent.parts import Parts
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError

LAST_LOG = 5.0
"""Seconds for the last copy of the log, before the report after which the machine may be taken away."""
_ENDED = ("ended", "done", "unclaimed")
PATIENCE = 2.5
"""Heartbeats for which a living worker may stay silent."""


def all_ended(parts: Parts, attempt: Attempt, reason: str) -> bool:
    """
    Wait until the job of every worker has ended well; return False when the gang goes on instead.

    Only then is it known whether there is a checkpoint that every worker has a part of.
    """
    others = [n for n in range(parts.settings.workers) if n != parts.settings.worker]
    if others:
        with contextlib.suppress(AgentError, OSError):
            parts.shipper.ship(LAST_LOG)
        parts.status.set(phase="ended", message=reason)
    while others:
        if parts.orders.overtaken(attempt.attempt):
            return False
        others = [
            n
            for n in others
            if not parts.patiently("read heartbeats", partial(_has_ended, parts, n, attempt))
        ]
        if others:
            parts.orders.wait(parts.settings.poll)
    return True


def first_ended(parts: Parts, attempt: Attempt) -> bool:
    """Wait until the job of worker 0 has ended well; return False when the gang goes on instead."""
    while not parts.patiently("read heartbeats", partial(_has_ended, parts, 0, attempt)):
        if parts.orders.overtaken(attempt.attempt):
            return False
        parts.orders.wait(parts.settings.poll)
    return True


def silent_peer(parts: Parts, attempt: int) -> Optional[int]:
    """
    Return a worker that reports nothing for PATIENCE heartbeats from now on, None when all do.

    It is asked before a gang gives up: jobs fail for want of a worker whose machine is dead, and that is
    no fault of theirs. It returns early when somebody has begun a later attempt.
    """
    settings = parts.settings
    waited_for = set(range(settings.workers)) - {settings.worker}
    # Generations and not times: the clocks of two machines need not agree.
    before = {worker: _generation(parts, worker) for worker in waited_for}
    end = time.monotonic() + PATIENCE * settings.heartbeat
    while waited_for and time.monotonic() < end and not parts.orders.overtaken(attempt):
        waited_for = {w for w in waited_for if _generation(parts, w) == before[w]}
        if waited_for:
            parts.orders.wait(settings.poll)
    return min(waited_for, default=None)


def _has_ended(parts: Parts, worker: int, attempt: Attempt) -> bool:
    held = parts.bucket.read(heartbeat_name(parts.settings.incarnation, worker), 10.0)
    # Whatever else that worker wrote, it has not said that it has ended.
    value = json_value(held.data if held is not None else None) or {}
    return value.get("phase") in _ENDED and value.get("attempt") == attempt.attempt


def _generation(parts: Parts, worker: int) -> str:
    """Return the generation of a worker's heartbeat, or an empty text if there is none or it is not known."""
    name = heartbeat_name(parts.settings.incarnation, worker)
    try:
        found: Dict[str, object] = parts.bucket.stat(name) or {}
    except AgentError:
        return ""
    return str(found.get("generation", ""))
