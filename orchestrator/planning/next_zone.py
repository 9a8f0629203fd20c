"""When and where to ask for the next node: zone order, back-off by class of refusal, when to give up."""

import hashlib
from collections import Counter
from collections.abc import Sequence

from orchestrator.contract.backoff import Backoff
from orchestrator.domain.capacity import holds_one, order, passed_over, place_of, zone_summary
from orchestrator.domain.first_seen import Sign, of_name
from orchestrator.domain.node_price import Prices
from orchestrator.domain.observation import World
from orchestrator.domain.plan import Kind, Step
from orchestrator.domain.record import Record, Refusal, succeeded
from orchestrator.domain.spec import Spec
from orchestrator.errors import Retry

FIRST_DELAY = {
    Retry.CAPACITY: 5.0,
    Retry.QUOTA: 5.0,
    Retry.TRANSIENT: 2.0,
    Retry.UNKNOWN: 10.0,
    Retry.PERMANENT: 60.0,
}
LONGEST_DELAY = {
    Retry.CAPACITY: 60.0,
    Retry.QUOTA: 120.0,
    Retry.TRANSIENT: 60.0,
    Retry.UNKNOWN: 200.0,
    Retry.PERMANENT: 200.0,
}
LONGEST_PAUSE = 1.5 * max(LONGEST_DELAY.values())
"""Seconds of the longest pause, since jitter may add half of a delay to it."""
LONGEST_GOING = 600.0
"""Seconds that a deletion is waited for because of what is remembered of quota; then quota is asked again."""
NO_PRICES = Prices()
# A deletion under way frees quota within minutes, so one refusal for quota is not believed for good.
QUOTA_TRIES = 5
UNKNOWN_TRIES = 8


def next_zone(
    spec: Spec, record: Record, now: float, prices: Prices = NO_PRICES, full: Sequence[str] = ()
) -> str:
    """Return the zone for the next node; one of *full* counts as one that has refused."""
    zones, refused = zone_order(spec, record, now, prices), _refused_zones(record)
    # Counted once: a zone that has refused for quota is both.
    full = [zone for zone in full if zone not in refused]
    return min(zones, key=[*refused, *full].count)


def full_zones(spec: Spec, world: World, record: Record) -> tuple[str, ...]:
    """Return the zones whose quota one of our TPUs still holds."""
    return tuple(zone for zone in spec.tpu.zones if quota_held(world, record, zone))


def zone_order(spec: Spec, record: Record, now: float, prices: Prices = NO_PRICES) -> tuple[str, ...]:
    """
    Return the zones in the order of asking: by what is remembered of them, then by who refused less often.

    A zone beside the bucket comes before one elsewhere that is otherwise as good.
    """
    near, fares = _nearness(spec, record, prices), _fares(spec, record, prices)
    ranked = order(spec.tpu.zones, record.places, record.node.type, now, record.node.zone, near, fares)
    return tuple(sorted(ranked, key=_refused_zones(record).count))


def _refused_zones(record: Record) -> list[str]:
    elsewhere = {Retry.CAPACITY, Retry.QUOTA}
    return [r.zone for r in record.refusals if r.kind is Kind.NODE and r.retry in elsewhere]


def _nearness(spec: Spec, record: Record, prices: Prices) -> dict[str, float]:
    return {zone: prices.nearness(record.node.type, zone, spot=spec.tpu.spot) for zone in spec.tpu.zones}


def _fares(spec: Spec, record: Record, prices: Prices) -> dict[str, float]:
    """Return what each zone costs more than the cheapest that is as near: price never outweighs a long way."""
    fares = prices.fares(record.node.type, spec.tpu.zones, spot=spec.tpu.spot)
    beside = {zone: prices.egress.get(zone, 0.0) == 0.0 for zone in fares}
    return {
        zone: fare - min(fares[z] for z in fares if beside[z] == beside[zone]) for zone, fare in fares.items()
    }


def why_there(spec: Spec, record: Record, now: float, zone: str, prices: Prices = NO_PRICES) -> str:
    """Say why *zone* is asked before those that the file names earlier; empty when none is passed over."""
    near, fares = _nearness(spec, record, prices), _fares(spec, record, prices)
    text = passed_over(spec.tpu.zones, record.places, record.node.type, now, zone, near, fares)
    matters = record.places or min(near.values()) < 1.0 or any(fares.values())
    return f"; {text}" if text and matters else ""


def remembered(spec: Spec, record: Record) -> list[tuple[float, str]]:
    """Return what is remembered of the file's zones, each with the time of its last event."""
    found = (place_of(record.places, zone, record.node.type) for zone in spec.tpu.zones)
    known = [one for one in found if one.out_at or one.granted_at]
    return [(max(one.out_at, one.granted_at), f"{one.zone}: {zone_summary(one)}") for one in known]


def quota_held(world: World, record: Record, zone: str) -> bool:
    """
    Say whether a node of ours that is being deleted in *zone* holds the quota that the next one needs.

    Quota has refused the last create beside it, or one beside an earlier node; then that is not tried again
    as long as the deletion takes no longer than it should.
    """
    refused = [r.retry for r in record.refusals if r.kind is Kind.NODE and r.zone == zone]
    old = [n for n in world.known_nodes if n.zone == zone]
    # The quota is not gone, it is ours: asking again before the old TPU is gone only adds refusals.
    if old and refused[-1:] == [Retry.QUOTA]:
        return True
    since = (record.first_seen.get(of_name(n.name, Sign.DELETION_ASKED), world.observed_at) for n in old)
    going = any(world.observed_at - asked < LONGEST_GOING for asked in since)
    return going and holds_one(record.places, zone, record.node.type, world.observed_at)


def waits_for_quota(zone: str) -> Step:
    """Return the wait for the old node to go."""
    return Step(waiting=f"TPU: quota in {zone} holds one TPU; waits for the old one to go", wake_in=5.0)


def create_gate(spec: Spec, record: Record, zone: str, kind: Kind = Kind.NODE) -> float:
    """
    Return the earliest time to ask for *kind* in *zone* again.

    The pause doubles, up to its cap, with each refusal of the last one's class since a success; those of other
    classes in between do not end the count. Jitter makes it up to half shorter or longer.
    """
    here = [r for r in record.refusals if r.zone == zone and r.kind is kind]
    if not here:
        return 0.0
    last = here[-1]
    alike = sum(1 for r in here if r.retry is last.retry)
    delay = Backoff(FIRST_DELAY[last.retry], LONGEST_DELAY[last.retry]).after(alike)
    return last.at + delay * (0.5 + _fraction(spec, record, last))


def _fraction(spec: Spec, record: Record, last: Refusal) -> float:
    """
    Return a number from 0 to 1 that is the same at each look and differs between deployments and refusals.

    Deployments that were refused in the same moment spread their next asks over as long as a whole delay.
    """
    text = f"{spec.name} {record.node.incarnation} {last.kind.value} {last.zone} {last.at!r}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def hopeless(record: Record) -> Refusal | None:
    """
    Return the refusal after which asking again is pointless, or None.

    Capacity comes back by itself and is asked for without end; a permission does not. As long as another
    zone only lacks capacity, a zone without quota ends nothing; nor does a refusal beside a TPU that works.
    """
    if succeeded(record):
        return None
    # A deadline may ask for what the project has no quota for; spot goes on without it.
    refusals = [r for r in record.refusals if not r.on_demand]
    if any(r.kind is Kind.NODE and r.retry is Retry.CAPACITY for r in refusals):
        return next((r for r in reversed(refusals) if r.retry is Retry.PERMANENT), None)
    limits = {Retry.PERMANENT: 1, Retry.QUOTA: QUOTA_TRIES, Retry.UNKNOWN: UNKNOWN_TRIES}
    # Counted in all, not in a row: refusals of several zones alternate.
    alike = Counter((r.kind, r.retry) for r in refusals)
    for last in reversed(refusals):
        if last.retry in limits and alike[last.kind, last.retry] >= limits[last.retry]:
            return last
    return None


def held_back(spec: Spec, record: Record, world: World, kind: Kind, zone: str = "") -> Step | None:
    """Return the wait after refusals of *kind*, or None when it may be asked for now."""
    final = hopeless(record)
    if final is not None:
        return Step(waiting=f"{kind.title}: not requested again ({final.text})")
    gate = create_gate(spec, record, zone, kind) - world.observed_at
    held = world.held.get(zone, 0.0) - world.observed_at if kind is Kind.NODE else 0.0
    if held > max(0.0, gate):
        return Step(waiting=f"TPU: held back for {held:.0f} s by the create budget", wake_in=held)
    return Step(waiting=f"{kind.title}: next try in {gate:.0f} s", wake_in=gate) if gate > 0 else None
