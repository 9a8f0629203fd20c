"""What the record holds before the calls of a plan are made: a killed controller's successor must find it."""

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import History, deletion_asked
from orchestrator.planning.never_reported import with_beacon, with_mute
from orchestrator.planning.on_demand import asks_flex_start, asks_on_demand
from orchestrator.planning.race import asked_for


def intended(history: History, changes: Sequence[Change], *, queued: bool, now: float) -> History:
    """
    Return the record with the intents of all *changes*, so that one write covers them all.

    *queued* says whether TPUs are asked for through the queue; *now* is in seconds since the epoch.
    """
    for change in changes:
        history = _with_intent(history, change, queued=queued, now=now)
    return history


def _with_intent(history: History, change: Change, *, queued: bool, now: float) -> History:
    """Return the record with the place of a VM, or the TPU that is about to be asked for, or to be deleted."""
    if (change.kind, change.verb) == (Kind.VM, Verb.CREATE):
        used = dict.fromkeys((*history.zones_used, change.zone))
        return replace(history, zones_used=tuple(used))
    if change.kind is not Kind.NODE:
        return history
    if change.verb is Verb.DELETE:
        return with_mute(deletion_asked(history, change.name, now), change, now)
    number = change.incarnation or 0
    asked = asked_for(history, change.zone, number, change.round, now, change.type)
    dear = {*asked.on_demand, number} if asks_on_demand(change) else asked.on_demand
    flex = {*asked.flex_start, number} if asks_flex_start(change) else asked.flex_start
    asked = replace(asked, on_demand=tuple(sorted(dear)), flex_start=tuple(sorted(flex)))
    asked = replace(asked, queued=asked.queued or queued or bool(flex))
    return with_beacon(asked, number)
