"""List a resource over all zones of a project at once: what was found, and which places did not answer."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from orchestrator.domain.names import region_of
from orchestrator.domain.observation import Node, Observed, Present, Unknown, Vm
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record

ALL_ZONES = "-"
"""Location name that means all zones (docs/facts.md 1.3)."""


class InZone(Protocol):
    """A resource in a zone."""

    @property
    def zone(self) -> str:
        """Return the name of the zone, for example `us-central2-b`."""


T = TypeVar("T", bound=InZone)


@dataclass(frozen=True)
class AllZones(Generic[T]):
    """What the list has found. What exists in the *unreachable* places is Unknown."""

    found: tuple[T, ...]
    unreachable: tuple[str, ...] = ()


ObservedAllZones = Present[AllZones[T]] | Unknown


def within(listed: ObservedAllZones[T], zones: Collection[str]) -> Observed[tuple[T, ...]]:
    """Return what is in *zones*; Unknown if one of them was not reached, because unknown is not absent."""
    if isinstance(listed, Unknown):
        return listed
    # The API may name a zone, a region or everything as unreachable.
    silent = [
        z for z in zones if any(place in {z, region_of(z), ALL_ZONES} for place in listed.value.unreachable)
    ]
    if silent:
        return Unknown(f"the list over all zones had no answer from {', '.join(silent)}")
    return Present(tuple(one for one in listed.value.found if one.zone in zones))


def outside(listed: AllZones[T], zones: Collection[str]) -> tuple[T, ...]:
    """Return what is in none of *zones*."""
    return tuple(one for one in listed.found if one.zone not in zones)


def both(one: Observed[tuple[T, ...]], other: Observed[tuple[T, ...]]) -> Observed[tuple[T, ...]]:
    """Return two lists as one; Unknown if one of them is."""
    for listed in (one, other):
        if isinstance(listed, Unknown):
            return listed
    lists = [listed.value for listed in (one, other) if isinstance(listed, Present)]
    return Present(tuple(item for found in lists for item in found))


def expected_in(record: Record, zones: Sequence[str]) -> tuple[str, ...]:
    """Return the *zones* in which the record expects a TPU; there only the zone's own list proves absence."""
    racing = {candidate.zone for candidate in record.race.candidates}
    running = {span.zone for span in record.spans if span.kind is Kind.NODE and span.until is None}
    newest = {record.node.zone} if record.node.incarnation else set()
    # A list over all zones may be older than a zone's own, so it proves presence and never absence.
    return tuple(zone for zone in zones if zone in racing | running | newest)


def deletion_command(machine: Node | Vm, project: str) -> str:
    """Return the gcloud command for a machine that tpuctl itself must not delete."""
    if isinstance(machine, Vm):
        where = f"--zone {machine.zone} --project {project or 'PROJECT'}"
        return f"gcloud compute instances delete {machine.name} {where}"
    node = machine
    kind, force = ("queued-resources", " --force") if node.queued is not None else ("tpu-vm", "")
    name = node.queued.name if node.queued is not None else node.name
    return (
        f"gcloud compute tpus {kind} delete {name} --zone {node.zone} --project {project or 'PROJECT'}{force}"
    )
