"""Decide which TPUs run in a race: a new round in several zones at once, and who joins one under way."""

from orchestrator.domain import names
from orchestrator.domain.names import region_of
from orchestrator.domain.observation import Unknown, World
from orchestrator.domain.plan import Change, Kind, Verb
from orchestrator.domain.record import Record, newest_incarnation
from orchestrator.domain.spec import Spec
from orchestrator.planning.next_zone import create_gate, held_back, quota_held, waits_for_quota, zone_order
from orchestrator.planning.race import WIDTH, candidates, races, undecided
from orchestrator.planning.step import Step
from orchestrator.planning.tpu_types import current_type


def new_round(spec: Spec, world: World, record: Record, why: str) -> Step:
    """Ask for a TPU in each of the first zones that may be asked now; else wait for the first that may."""
    zones = zone_order(spec, record, world.seen_at, world.prices)
    ready = [zone for zone in zones if _free(spec, world, record, zone)]
    free = [zone for zone in ready if _may_meet(spec, zone, ready[0])][:WIDTH]
    if not free:
        soonest = min(zones, key=lambda zone: create_gate(spec, record, zone))
        wait = held_back(spec, record, world, Kind.NODE, soonest)
        return wait or waits_for_quota(soonest)
    return Step(_creates(spec, record, free, newest_incarnation(record) + 1, why))


def joining(spec: Spec, world: World, record: Record) -> tuple[Change, ...]:
    """Return who joins the race under way, in zones that have refused before and may be asked again."""
    if not races(spec) or not undecided(record) or isinstance(world.claim, Unknown):
        return ()
    taken = {record.node.zone, *(one.zone for one in candidates(record))}
    room = WIDTH - 1 - len(candidates(record))
    zones = zone_order(spec, record, world.seen_at, world.prices)
    others = [zone for zone in zones if zone not in taken and _may_meet(spec, zone, record.node.zone)]
    free = [zone for zone in others if _free(spec, world, record, zone)][: max(0, room)]
    return _creates(spec, record, free, record.race.round, "a place in the race is free")


def _may_meet(spec: Spec, zone: str, other: str) -> bool:
    """Say whether two zones may be in one race; of several regions only where the file says so."""
    return spec.tpu.strategy == "race-regions" or region_of(zone) == region_of(other)


def _free(spec: Spec, world: World, record: Record, zone: str) -> bool:
    held = held_back(spec, record, world, Kind.NODE, zone)
    return held is None and not quota_held(world, record, zone)


def _creates(spec: Spec, record: Record, zones: list[str], race: int, why: str) -> tuple[Change, ...]:
    first = newest_incarnation(record) + 1
    kind = current_type(spec, record)
    other = kind != spec.tpu.type
    asked = [(number, names.node_name(spec, number), zone) for number, zone in enumerate(zones, first)]
    return tuple(
        Change(Kind.NODE, Verb.CREATE, name, why, zone, number, race, kind, substitute=other)
        for number, name, zone in asked
    )
