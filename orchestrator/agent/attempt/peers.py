"""Check whether the slice's other workers are alive, and wait for their ends."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import Dict, Optional

from orchestrator.agent.agreement.attempts import Attempt
from orchestrator.agent.context import AgentContext
from orchestrator.agent.telemetry.heartbeat import heartbeat_name
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import AgentError
from orchestrator.contract.phase import WELL, Phase

LAST_LOG_TIMEOUT = 5.0
"""Seconds for the last upload of the log, before the report after which the machine may be deleted."""
_ENDED = (Phase.ENDED, *WELL)
SILENCE = 2.5
"""Heartbeat intervals that a living worker may miss."""


def all_ended(context: AgentContext, attempt: Attempt, message: str) -> bool:
    """
    Wait until the jobs of all workers have ended well; return False if the gang continues instead.

    Only then is it known whether a checkpoint has a part of every worker.
    """
    others = [n for n in range(context.settings.workers) if n != context.settings.worker]
    if others:
        with contextlib.suppress(AgentError, OSError):
            context.shipper.ship(LAST_LOG_TIMEOUT)
        context.heartbeat.set(phase=Phase.ENDED, message=message)
    while others:
        if context.end_requests.overtaken(attempt.attempt):
            return False
        others = [
            n
            for n in others
            if not context.patiently("read heartbeats", partial(_has_ended, context, n, attempt))
        ]
        if others:
            context.end_requests.wait(context.settings.poll)
    return True


def first_ended(context: AgentContext, attempt: Attempt) -> bool:
    """Wait until worker 0's job has ended well; return False if the gang continues instead."""
    while not context.patiently("read heartbeats", partial(_has_ended, context, 0, attempt)):
        if context.end_requests.overtaken(attempt.attempt):
            return False
        context.end_requests.wait(context.settings.poll)
    return True


def silent_peer(context: AgentContext, attempt: int) -> Optional[int]:
    """
    Return a worker without a new heartbeat for SILENCE heartbeat intervals, None if there is none.

    Called before a gang gives up: a job also fails when another worker's machine is dead, which is not its
    fault. It returns early if there is a later attempt.
    """
    settings = context.settings
    waited_for = set(range(settings.workers)) - {settings.worker}
    # Generations instead of times, because the clocks of two machines may differ.
    before = {worker: _generation(context, worker) for worker in waited_for}
    end = context.clock.monotonic() + SILENCE * settings.heartbeat_interval
    while waited_for and context.clock.monotonic() < end and not context.end_requests.overtaken(attempt):
        waited_for = {w for w in waited_for if _generation(context, w) == before[w]}
        if waited_for:
            context.end_requests.wait(settings.poll)
    return min(waited_for, default=None)


def _has_ended(context: AgentContext, worker: int, attempt: Attempt) -> bool:
    held = context.bucket.read(heartbeat_name(context.settings.incarnation, worker), 10.0)
    # An unreadable report does not say that the worker has ended.
    value = json_value(held.data if held is not None else None) or {}
    return value.get("phase") in _ENDED and value.get("attempt") == attempt.attempt


def _generation(context: AgentContext, worker: int) -> str:
    """Return the generation of a worker's heartbeat, "" if there is none or it is unknown."""
    name = heartbeat_name(context.settings.incarnation, worker)
    try:
        found: Dict[str, object] = context.bucket.stat(name) or {}
    except AgentError:
        return ""
    return str(found.get("generation", ""))
