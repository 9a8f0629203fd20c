"""Decide when and where to request the next node: the ranking of zones, back-off by class of refusal, giving up."""

import hashlib
from collections import Counter
from collections.abc import Sequence

from orchestrator.contract.backoff import Backoff
from orchestrator.domain.first_seen import Condition, of_name
from orchestrator.domain.machines.capacity import (
    holds_one,
    passed_over,
    ranked_zones,
    zone_history,
    zone_summary,
)
from orchestrator.domain.machines.node_price import Prices
from orchestrator.domain.observation import World
from orchestrator.domain.plan import Decision, Kind, LoopRule
from orchestrator.domain.record import Record, Refusal, has_successors
from orchestrator.domain.spec import Spec
from orchestrator.domain.wait import Wait
from orchestrator.errors import Retry

BACKOFF: dict[Retry, Backoff] = {
    Retry.CAPACITY: Backoff(5.0, 60.0),
    Retry.QUOTA: Backoff(5.0, 120.0),
    Retry.TRANSIENT: Backoff(2.0, 60.0),
    Retry.UNKNOWN: Backoff(10.0, 200.0),
    Retry.PERMANENT: Backoff(60.0, 200.0),
}
"""The delays between requests after refusals of each class, without their jitter."""
MAX_PAUSE = 1.5 * max(backoff.longest for backoff in BACKOFF.values())
"""Longest pause in seconds; jitter may add half of a delay to it."""
MAX_GOING = 600.0
"""Seconds that remembered quota blocks a create while a node is deleted; then quota is tried again."""
QUOTA_POLL = 5.0
"""Seconds between two checks whether a node that holds the quota is deleted."""
NO_PRICES = Prices()
QUOTA_TRIES = 5
"""Refusals for quota that end the search: a deletion frees quota within minutes, so one does not."""
CREATE_BUDGET = "by tpuctl's own create budget (docs/zones.md)"
UNKNOWN_TRIES = 8
"""Refusals of an unknown class that end it, about ten minutes after the first: our choice."""


def next_zone(
    spec: Spec, record: Record, now: float, prices: Prices = NO_PRICES, full: Sequence[str] = ()
) -> str:
    """Return the zone for the next node; zones in *full* count as zones that have refused."""
    zones, refused = zone_order(spec, record, now, prices), _refused_zones(record)
    # Counted once, even if the zone has also refused for quota.
    full = [zone for zone in full if zone not in refused]
    return min(zones, key=[*refused, *full].count)


def full_zones(spec: Spec, world: World, record: Record) -> tuple[str, ...]:
    """Return the zones whose quota is still held by one of our TPUs."""
    return tuple(zone for zone in spec.tpu.zones if quota_held(world, record, zone))


def zone_order(spec: Spec, record: Record, now: float, prices: Prices = NO_PRICES) -> tuple[str, ...]:
    """
    Return the zones in the order of requests: by the capacity history, then by the number of recent refusals.

    Among equal zones, one beside the bucket comes first.
    """
    near, fares = _nearness(spec, record, prices), _fares(spec, record, prices)
    ranked = ranked_zones(
        spec.tpu.zones, record.capacity_history, record.node.type, now, record.node.zone, near, fares
    )
    return tuple(sorted(ranked, key=_refused_zones(record).count))


def _refused_zones(record: Record) -> list[str]:
    elsewhere = {Retry.CAPACITY, Retry.QUOTA}
    return [r.zone for r in record.refusals if r.kind is Kind.NODE and r.retry in elsewhere]


def _nearness(spec: Spec, record: Record, prices: Prices) -> dict[str, float]:
    return {zone: prices.nearness(record.node.type, zone, spot=spec.tpu.spot) for zone in spec.tpu.zones}


def _fares(spec: Spec, record: Record, prices: Prices) -> dict[str, float]:
    """Return each zone's extra price over the cheapest one that is as near; distance always outweighs price."""
    fares = prices.fares(record.node.type, spec.tpu.zones, spot=spec.tpu.spot)
    beside = {zone: prices.egress.get(zone, 0.0) == 0.0 for zone in fares}
    return {
        zone: fare - min(fares[z] for z in fares if beside[z] == beside[zone]) for zone, fare in fares.items()
    }


def zone_text(spec: Spec, record: Record, now: float, zone: str, prices: Prices = NO_PRICES) -> str:
    """Return why *zone* precedes zones that the file names earlier; empty if it skips none."""
    near, fares = _nearness(spec, record, prices), _fares(spec, record, prices)
    text = passed_over(spec.tpu.zones, record.capacity_history, record.node.type, now, zone, near, fares)
    matters = record.capacity_history or min(near.values()) < 1.0 or any(fares.values())
    return f"; {text}" if text and matters else ""


def remembered(spec: Spec, record: Record) -> list[tuple[float, str]]:
    """Return what is remembered of the file's zones, each with the time of its last event."""
    found = (zone_history(record.capacity_history, zone, record.node.type) for zone in spec.tpu.zones)
    known = [one for one in found if one.out_at or one.granted_at]
    return [(max(one.out_at, one.granted_at), f"{one.zone}, in all: {zone_summary(one)}") for one in known]


def quota_held(world: World, record: Record, zone: str) -> bool:
    """
    Return whether one of our nodes that is being deleted in *zone* holds the quota for the next one.

    True if quota has refused the last create beside it, or one beside an earlier node, and the deletion is
    not overdue.
    """
    refused = [r.retry for r in record.refusals if r.kind is Kind.NODE and r.zone == zone]
    old = [n for n in world.known_nodes if n.zone == zone]
    # Our own TPU holds the quota: until it is deleted, every request would only add a refusal.
    if old and refused[-1:] == [Retry.QUOTA]:
        return True
    since = (
        record.first_seen.get(of_name(n.name, Condition.DELETION_REQUESTED), world.observed_at) for n in old
    )
    going = any(world.observed_at - asked < MAX_GOING for asked in since)
    return going and holds_one(record.capacity_history, zone, record.node.type, world.observed_at)


def quota_wait(zone: str) -> Wait:
    """Return the wait for a quota that our own node holds, the same before and after a refusal."""
    # Without an error code, since nothing is wrong.
    return Wait(f"TPU: the old one holds the quota in {zone} until it is deleted; checked again", QUOTA_POLL)


def waits_for_quota(zone: str) -> Decision:
    """Return a decision that waits for the deletion of our own node, whose quota the next one needs."""
    return Decision(wait=quota_wait(zone), wake_in=QUOTA_POLL, rule=LoopRule.REFUSED_WAIT)


def create_gate(spec: Spec, record: Record, zone: str, kind: Kind = Kind.NODE) -> float:
    """
    Return the earliest time to request *kind* in *zone* again, in seconds since the epoch.

    The pause doubles, up to its cap, with each refusal of the last one's class since a success; refusals of
    other classes do not reset the count. Jitter makes it up to half shorter or longer.
    """
    here = [r for r in record.refusals if r.zone == zone and r.kind is kind]
    if not here:
        return 0.0
    last = here[-1]
    alike = sum(1 for r in here if r.retry is last.retry)
    return last.at + BACKOFF[last.retry].after(alike) * (0.5 + _fraction(spec, record, last))


def _fraction(spec: Spec, record: Record, last: Refusal) -> float:
    """
    Return a number from 0 to 1 that is stable over passes and differs between deployments and refusals.

    It spreads the next requests of deployments that were refused at the same moment over the whole delay.
    """
    text = f"{spec.name} {record.node.incarnation} {last.kind.value} {last.zone} {last.at!r}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") / 2**64


def hopeless(record: Record) -> Refusal | None:
    """
    Return the refusal after which another request is pointless, or None.

    Stockouts pass by themselves and are retried without end; a missing permission does not. A zone without
    quota ends nothing while another zone only lacks capacity, nor does a refusal beside a TPU that works.
    """
    if has_successors(record):
        return None
    # A deadline may request on demand without quota for it; spot continues without.
    refusals = [r for r in record.refusals if not r.on_demand]
    if any(r.kind is Kind.NODE and r.retry is Retry.CAPACITY for r in refusals):
        return next((r for r in reversed(refusals) if r.retry is Retry.PERMANENT), None)
    limits = {Retry.PERMANENT: 1, Retry.QUOTA: QUOTA_TRIES, Retry.UNKNOWN: UNKNOWN_TRIES}
    # Counted in total, not in a row, because refusals of several zones alternate.
    alike = Counter((r.kind, r.retry) for r in refusals)
    for last in reversed(refusals):
        if last.retry in limits and alike[last.kind, last.retry] >= limits[last.retry]:
            return last
    return None


def refusal_to_cure(record: Record) -> Refusal | None:
    """Return the refusal that a person has to cure, as waiting does not: a final one, else the last for quota."""
    last = record.refusals[-1] if record.refusals and not has_successors(record) else None
    small = last is not None and last.retry is Retry.QUOTA and not last.full and not last.on_demand
    return hopeless(record) or (last if small else None)


def _reason(record: Record, kind: Kind) -> str:
    """Return why the last request of *kind* was refused, in a few words; "" without a refusal."""
    last = next((r for r in reversed(record.refusals) if r.kind is kind), None)
    if last is None:
        return ""
    where = f" in {last.zone}" if last.zone else ""
    return {
        Retry.CAPACITY: f"there was no capacity{where}",
        Retry.QUOTA: f"the quota{where} was full",
    }.get(last.retry, f"the last request{where} failed")


def held_back(spec: Spec, record: Record, world: World, kind: Kind, zone: str = "") -> Decision | None:
    """Return the wait after refusals of *kind*, or None if it may be requested now."""
    final = hopeless(record)
    if final is not None:
        text = f"{kind.title}: not requested again ({final.text})"
        return Decision(wait=Wait(text), rule=LoopRule.REFUSED_FINAL)
    gate = create_gate(spec, record, zone, kind) - world.observed_at
    pause = world.create_pauses.get(zone, 0.0) - world.observed_at if kind is Kind.NODE else 0.0
    if pause > max(0.0, gate):
        limit = "; ".join(filter(None, (CREATE_BUDGET, _reason(record, kind))))
        return Decision(wait=Wait("TPU: next try", pause, limit), wake_in=pause, rule=LoopRule.TPU_CREATE)
    if gate <= 0:
        return None
    wait = Wait(f"{kind.title}: next try", gate, _reason(record, kind))
    return Decision(wait=wait, wake_in=gate, rule=LoopRule.REFUSED_WAIT)
