"""
Rebuild a lost record from the journal and the heartbeats: the newest incarnation, its zone and its age.

Everything else is observed: machines are found by their labels.
"""

from contextlib import suppress
from dataclasses import replace
from typing import Any

from orchestrator import threads
from orchestrator.contract.bucket.object_names import HEARTBEAT, JOURNAL
from orchestrator.domain.checksum import verified
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.ports import Store
from orchestrator.domain.record import BucketRecord, NodeRecord, Record, newest_incarnation
from orchestrator.engine.bucket.heartbeats import worker_of
from orchestrator.engine.records.record_checks import check_record
from orchestrator.errors import UNFORESEEN
from orchestrator.planning.tpu.race import accepted, with_request

MAX_NUMBERS_AHEAD = 1000
"""Most TPUs that may have been requested beyond the journal's newest, if its last entries are lost."""


def rebuilt(store: Store) -> Record:
    """
    Return the record that follows from the journal in the bucket; unreadable entries are left out.

    Raise TpuctlError if the bucket does not answer: a shorter journal would give a wrong record.
    """
    intents = [name.name for name in store.list(JOURNAL) if name.name.endswith(".intent.json")]
    with threads.pool(8) as pool:
        found = [entry for entry in pool.map(lambda name: _entry(store, name), intents) if entry]
    workers = [worker_of(found.name) for found in store.list(HEARTBEAT)]
    asked = max((_incarnation(entry) for entry in found), default=0)
    # Machines choose the names of heartbeats, so a number far beyond the journal is not one of our TPUs.
    reported = (place[0] for place in workers if place is not None)
    newest = max((number for number in reported if number <= asked + MAX_NUMBERS_AHEAD), default=0)
    # queued: it is unknown whether something waits in the queue, so the queue is listed.
    record = Record(bucket=BucketRecord(observed=True), node=NodeRecord(incarnation=newest, queued=True))
    # In the order of time over all writers: the last intent of each kind counts.
    for entry in sorted(found, key=lambda e: float(e["at"])):
        with suppress(*UNFORESEEN):
            after = _after(record, entry)
            # The limits of a record apply to each entry, so that one bad entry is left out and no other with it.
            check_record(after)
            record = after
    return record


def _entry(store: Store, name: str) -> dict[str, Any] | None:
    stored = store.read(name)
    try:
        body = verified(stored.data) if stored else {}
        kind, verb = Kind(body["kind"]), Verb[body["verb"].upper()]
        return {**body, "at": float(body["at"]), "kind": kind, "verb": verb}
    except UNFORESEEN:
        return None


def _incarnation(entry: dict[str, Any]) -> int:
    with suppress(*UNFORESEEN):
        return int(entry.get("incarnation") or 0)
    return 0


def _after(record: Record, entry: dict[str, Any]) -> Record:
    """Return *record* with one intent of the journal applied."""
    record = replace(record, started_at=record.started_at or entry["at"])
    if entry["verb"] is not Verb.CREATE:
        return record
    if entry["kind"] is Kind.VM:
        return replace(record, vm=replace(record.vm, accepted=True))
    if entry["kind"] is not Kind.NODE:
        return record
    zone, incarnation = str(entry.get("zone", "")), int(entry.get("incarnation") or 0)
    race = int(entry.get("round") or 0)
    number = incarnation if race else max(newest_incarnation(record), incarnation)
    kind, beside = str(entry.get("type") or ""), entry.get("beside") is True
    return accepted(with_request(record, zone, number, race, entry["at"], kind, beside=beside), number)
