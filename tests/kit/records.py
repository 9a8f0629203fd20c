"""Build records for tests from a flat list of values."""

from typing import Any

from orchestrator.domain.record import Record
from orchestrator.engine.records.record_format import states_of, with_stored

STORED = {
    "bucket_observed": "bucket_seen",
    "first_seen": "sightings",
    "message": "reason",
    "never_reported": "mute",
    "heartbeat_at_boot": "beacons",
    "ssh_failed_since": "remote_failed_since",
    "ssh_next_try_at": "next_remote_at",
    "up_times": "starts",
    "capacity_history": "places",
}
"""Fields whose keys in the stored record are those of its first version."""


def record_of(**values: Any) -> Record:
    """Return a record with these values."""
    return changed(Record(), **values)


def changed(record: Record, **values: Any) -> Record:
    """Return *record* with other values; *first_seen* is given as texts such as `node:1:ready`."""
    stored = {STORED.get(name, name): value for name, value in values.items()}
    if "sightings" in stored:
        stored["sightings"] = states_of(stored["sightings"])
    return with_stored(record, stored)
