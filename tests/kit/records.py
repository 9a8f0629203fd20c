"""Records by the names that their values have in the file, which are flat and short."""

from typing import Any

from orchestrator.domain.record import Record
from orchestrator.engine.record_format import states_of, with_stored


def record_of(**stored: Any) -> Record:
    """Return a record with these values."""
    return changed(Record(), **stored)


def changed(record: Record, **stored: Any) -> Record:
    """Return *record* with other values."""
    if "sightings" in stored:
        stored["sightings"] = states_of(stored["sightings"])
    return with_stored(record, stored)
