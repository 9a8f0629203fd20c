"""Compute the record that must be stored before the calls of a plan, for the successor of a killed controller."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import Record, deletion_requested
from orchestrator.planning.tpu.never_reported import with_boot_heartbeat, with_silent_tpu
from orchestrator.planning.tpu.race import with_request


def intended(record: Record, changes: Sequence[Change], *, queued: bool, now: float) -> Record:
    """
    Return the record with the intents of all *changes*, for one write.

    *queued* says that TPUs are requested through the queue; *now* is in seconds since the epoch.
    """
    for change in changes:
        record = _with_intent(record, change, queued=queued, now=now)
    return record


def _with_intent(record: Record, change: Change, *, queued: bool, now: float) -> Record:
    """Return the record with the zone of a VM, or with a TPU's requested create or delete."""
    if (change.kind, change.verb) == (Kind.VM, Verb.CREATE):
        # Also if the VM is refused later: an extra zone costs one list, a missing one could cost a machine.
        used = dict.fromkeys((*record.zones_used, change.zone))
        return replace(record, zones_used=tuple(used))
    if change.kind is not Kind.NODE:
        return record
    if change.verb is Verb.DELETE:
        return with_silent_tpu(deletion_requested(record, change.name, now), change, now)
    number = change.incarnation or 0
    asked = with_request(record, change.zone, number, change.round, now, change.type, beside=change.beside)
    # Without the number first: what is requested again may be of another kind.
    on_demand = {*asked.deadline.on_demand} - {number} | ({number} if change.on_demand else set())
    flex = {*asked.deadline.flex_start} - {number} | ({number} if change.flex_start else set())
    asked = replace(
        asked,
        deadline=replace(asked.deadline, on_demand=tuple(sorted(on_demand)), flex_start=tuple(sorted(flex))),
    )
    asked = replace(asked, node=replace(asked.node, queued=asked.node.queued or queued or bool(flex)))
    return with_boot_heartbeat(asked, number)
