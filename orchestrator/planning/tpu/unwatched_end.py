"""
Estimate when a TPU ended that had no watcher, for the bill. Pure.

Google's API has the time of a TPU's creation, and none of its end (fields of `tpu_v2.Node` in Google's client).
What tells that it still worked is the last heartbeat of its workers, by the bucket's clock.
"""

from dataclasses import replace

from orchestrator.contract.phase import AT_REST
from orchestrator.domain.first_seen import Condition, of_name
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import World
from orchestrator.domain.record import Record, Span

WATCHED = 60.0
"""Seconds between the estimated and the observed end up to which the observed one counts: a watcher saw it."""


def ended_span(span: Span, record: Record, world: World) -> Span:
    """
    Return the span of a TPU that has ended, closed.

    It ends when the next heartbeat would have been due. Where no heartbeat tells, and after a deletion of ours, it
    ends now, which is never too early.
    """
    now, interval = world.observed_at, world.heartbeat_interval
    # Only of the TPU's own number, and only while its workers had something to report: after the job's end
    # they need not report, and the machine may have existed for long.
    times = [
        heartbeat.updated
        for heartbeat in world.heartbeats_of(incarnation_of(span.name, {}))
        if heartbeat.phase not in AT_REST or heartbeat.preempted
    ]
    asked = of_name(span.name, Condition.DELETION_REQUESTED) in record.first_seen
    if interval is None or not times or asked:
        return replace(span, until=now)
    until = max(span.since, max(times) + interval)
    return replace(span, until=now) if now - until < WATCHED else replace(span, until=until, end_observed=now)
