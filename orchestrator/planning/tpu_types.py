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
    """Return the type to request: the first one whose best zone is about as promising (NEAR) as any other."""
    types = types_of(spec)
    if len(types) == 1:
        return types[0]
    values = {
        tpu_type: max(worth(place_of(record.places, zone, tpu_type), now) for zone in spec.tpu.zones)
        for tpu_type in types
    }
    return next(tpu_type for tpu_type in types if values[tpu_type] >= NEAR * max(values.values()))


def current_type(spec: Spec, record: Record) -> str:
    """Return the type of the newest TPU; the preferred one where the file does not allow that any more."""
    # A record that names another type, by mistake or by force, must not choose what is paid for.
    return record.node.type if record.node.type in types_of(spec) else spec.tpu.type
