"""Agree on the winner of a race: of all its TPUs one runs the job."""

from __future__ import annotations

from typing import Optional

from orchestrator.agent.cloud.storage import TIMEOUT, JobBucket
from orchestrator.agent.settings import Settings
from orchestrator.contract.bucket.claim import claim_name, claim_of, named_by
from orchestrator.contract.bucket.object_names import HEARTBEAT
from orchestrator.contract.json_values import json_value
from orchestrator.contract.machine_errors import PreconditionError, TransientError
from orchestrator.contract.phase import AT_REST
from orchestrator.contract.preemption_notice import REPORT_COUNTS

WIDEST = 1000
"""Largest number of TPUs in one race; their incarnations count up from the race's number."""


def still_saving(
    bucket: JobBucket, settings: Settings, now: float, timeout: float = TIMEOUT
) -> Optional[int]:
    """
    Return the newest TPU from before this race if it is being preempted and still saves, else None.

    A claim ends the wait: the controller writes one only when it has seen that TPU gone or at rest, while the last
    report of a TPU that was cut off in its save says "saves" for REPORT_COUNTS seconds more.
    """
    if bucket.read(claim_name(settings.round), timeout) is not None:
        return None
    found = [
        (int(number), name)
        for name in bucket.list(HEARTBEAT, timeout)
        for number in [name[len(HEARTBEAT) :].partition("/")[0]]
        if number.isdecimal() and int(number) < settings.round
    ]
    newest = max((number for number, _ in found), default=0)
    for name in (name for number, name in found if number == newest):
        held = bucket.read(name, timeout)
        heartbeat = json_value(held.data if held is not None else None) or {}
        said, at = heartbeat.get("phase"), heartbeat.get("at")
        fresh = type(at) is float and now - at < REPORT_COUNTS
        if heartbeat.get("preempted") is True and said not in AT_REST and fresh:
            return newest
    return None


def winner_of(bucket: JobBucket, settings: Settings, timeout: float = TIMEOUT) -> int:
    """Return the incarnation that has won this machine's race: its own unless another one was named first."""
    name, data = claim_name(settings.round), claim_of(settings.incarnation)
    try:
        bucket.write(name, data, 0, timeout)
    except PreconditionError:
        held = bucket.read(name, timeout)
        number = named(held.data if held is not None else b"", settings.round)
        if number is None:
            raise TransientError(f"{name} names no TPU of this race") from None
        return number
    return settings.incarnation


def named(data: bytes, race_round: int) -> Optional[int]:
    """Return the incarnation named in a claim, None if it is not a TPU of this race."""
    number = named_by(data)
    return number if number is not None and 0 <= number - race_round < WIDEST else None
