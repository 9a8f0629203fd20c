"""Check whether the slice's other workers are alive, and wait for their ends."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Dict, Optional

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.parts import Parts
from orchestrator.agent.telemetry.heartbeat import heartbeat_name
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.phase import WELL, Phase

LAST_LOG_TIMEOUT = 5.0
"""Seconds for the last upload of the log, before the report after which the machine may be deleted."""
_ENDED = (Phase.ENDED, *WELL)
SILENCE = 2.5
"""Heartbeat intervals that a living worker may miss."""


def all_ended(parts: Parts, attempt: Attempt, message: str) -> bool:
    """
    Wait until the jobs of all workers have ended well; return False if the gang continues instead.

    Only then is it known whether a checkpoint has a part of every worker.
    """
    others = [n for n in range(parts.settings.workers) if n != parts.settings.worker]
    if others:
        with contextlib.suppress(AgentError, OSError):
            parts.shipper.ship(LAST_LOG_TIMEOUT)
        parts.status.set(phase=Phase.ENDED, message=message)
    while others:
        if parts.end_requests.overtaken(attempt.attempt):
            return False
        others = [
            n
            for n in others
            if not parts.patiently("read heartbeats", partial(_has_ended, parts, n, attempt))
        ]
        if others:
            parts.end_requests.wait(parts.settings.poll)
    return True


def first_ended(parts: Parts, attempt: Attempt) -> bool:
    """Wait until worker 0's job has ended well; return False if the gang continues instead."""
    while not parts.patiently("read heartbeats", partial(_has_ended, parts, 0, attempt)):
        if parts.end_requests.overtaken(attempt.attempt):
            return False
        parts.end_requests.wait(parts.settings.poll)
    return True


def silent_peer(parts: Parts, attempt: int) -> Optional[int]:
    """
    Return a worker without a new heartbeat for SILENCE heartbeat intervals, None if there is none.

    Called before a gang gives up: a job also fails when another worker's machine is dead, which is not its
    fault. It returns early if there is a later attempt.
    """
    settings = parts.settings
    waited_for = set(range(settings.workers)) - {settings.worker}
    # Generations instead of times, because the clocks of two machines may differ.
    before = {worker: _generation(parts, worker) for worker in waited_for}
    end = parts.clock.monotonic() + SILENCE * settings.heartbeat
    while waited_for and parts.clock.monotonic() < end and not parts.end_requests.overtaken(attempt):
        waited_for = {w for w in waited_for if _generation(parts, w) == before[w]}
        if waited_for:
            parts.end_requests.wait(settings.poll)
    return min(waited_for, default=None)


def _has_ended(parts: Parts, worker: int, attempt: Attempt) -> bool:
    held = parts.bucket.read(heartbeat_name(parts.settings.incarnation, worker), 10.0)
    # An unreadable report does not say that the worker has ended.
    value = json_value(held.data if held is not None else None) or {}
    return value.get("phase") in _ENDED and value.get("attempt") == attempt.attempt


def _generation(parts: Parts, worker: int) -> str:
    """Return the generation of a worker's heartbeat, "" if there is none or it is unknown."""
    name = heartbeat_name(parts.settings.incarnation, worker)
    try:
        found: Dict[str, object] = parts.bucket.stat(name) or {}
    except AgentError:
        return ""
    return str(found.get("generation", ""))
