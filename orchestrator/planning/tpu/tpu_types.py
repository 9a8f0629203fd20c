"""Choose which TPU type is requested next, in order of preference."""

from orchestrator.domain.catalog import Catalog
from orchestrator.domain.machines.capacity import worth, zone_history
from orchestrator.domain.record import Record
from orchestrator.domain.spec import Spec

NEAR = 0.9
"""Share of the best type's worth from which on a type earlier in the file is preferred."""


def types_of(spec: Spec) -> tuple[str, ...]:
    """Return the types that the deployment file allows, the preferred one first."""
    return (spec.tpu.type, *spec.tpu.other_types)


def most_workers(spec: Spec, catalog: Catalog) -> int:
    """Return the number of machines of the largest TPU that the deployment file allows."""
    return max(a.hosts for a in map(catalog.accelerator, types_of(spec)) if a is not None)


def next_type(spec: Spec, record: Record, now: float) -> str:
    """Return the type to request: the first whose best zone is nearly (NEAR) as promising as any other's."""
    types = types_of(spec)
    if len(types) == 1:
        return types[0]
    values = {
        tpu_type: max(
            worth(zone_history(record.capacity_history, zone, tpu_type), now) for zone in spec.tpu.zones
        )
        for tpu_type in types
    }
    return next(tpu_type for tpu_type in types if values[tpu_type] >= NEAR * max(values.values()))


def current_type(spec: Spec, record: Record) -> str:
    """Return the type of the newest TPU, or the preferred one if the file no longer allows that type."""
    # A forged or damaged record must not choose what is paid for.
    return record.node.type if record.node.type in types_of(spec) else spec.tpu.type
