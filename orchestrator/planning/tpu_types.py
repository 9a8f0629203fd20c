"""Types of TPU in order of preference: which one is asked for next."""

from orchestrator.domain.capacity import place_of, worth
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec

NEAR = 0.9
"""A type is asked for in the order of the file as long as its worth is this part of the best type's."""


def types_of(spec: Spec) -> tuple[str, ...]:
    """Return the types that the deployment file allows, the preferred one first."""
    return (spec.tpu.type, *spec.tpu.other_types)


def next_type(spec: Spec, record: Record, now: float) -> str:
    """Return the type to ask for: the first one that some zone is as likely to have as any other type."""
    types = types_of(spec)
    if len(types) == 1:
        return types[0]
    values = {
        kind: max(worth(place_of(record.places, zone, kind), now) for zone in spec.tpu.zones)
        for kind in types
    }
    return next(kind for kind in types if values[kind] >= NEAR * max(values.values()))


def current_type(spec: Spec, record: Record) -> str:
    """Return the type of the newest TPU; the preferred one where the file does not allow that any more."""
    # A record that names another type, by mistake or by force, must not choose what is paid for.
    return record.node.type if record.node.type in types_of(spec) else spec.tpu.type
