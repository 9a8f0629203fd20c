"""
Apply the deadline: what the next TPU should be, when the present one is left, and the forecast.

The rules are in `planning.deadline`; this module supplies their input: prices from the table for the type and
each zone, and the capacity history.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from math import inf

from orchestrator.contract.backoff import Backoff
from orchestrator.domain.job_progress import with_heartbeats
from orchestrator.domain.machines.capacity import ZoneHistory, zone_history
from orchestrator.domain.machines.node_price import Prices
from orchestrator.domain.machines.queued_resource import IN_QUEUE
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Node, NodeState, Present, World
from orchestrator.domain.plan import Decision, Kind
from orchestrator.domain.record import TERMINAL, Record, Span, current_node
from orchestrator.domain.spec import Spec
from orchestrator.domain.status import DeadlineStatus
from orchestrator.domain.text.units import Duration
from orchestrator.domain.updated import updated
from orchestrator.errors import Retry
from orchestrator.planning.tpu.deadline import (
    Mode,
    ModeChoice,
    Offer,
    Situation,
    choose,
    granted_fraction,
    lifetime_of,
    on_time,
)
from orchestrator.planning.tpu.next_zone import create_gate, hopeless
from orchestrator.planning.tpu.race import may_overlap

FIRST_COLD, FIRST_COMMIT_INTERVAL = 900.0, 900.0
"""Assumed seconds of a start, and of work between two saves, before any was measured."""
MARGIN = 1.5
"""Factor by which the next start may take longer than the last one."""
FIRST_SHARE = 0.5
"""Assumed share of the time until the deadline that the work needs, before the time of a step was measured."""
SPOT_PRICE = 0.4
"""Assumed ratio of spot to on-demand price, if one is unknown; the tables say 0.3 to 0.5 for most types."""
AGAIN = 600.0
"""Seconds between two spot requests beside a working on-demand TPU; each costs one or two API calls."""
BELIEVED = 3600.0
"""Seconds between two such requests if the on-demand TPU must be deleted first; doubled after each vain one."""


def due_at(spec: Spec, record: Record) -> float | None:
    """Return the deadline in seconds since the epoch; None if there is none, or before the first `up`."""
    deadline = spec.watch.deadline
    if deadline is None or spec.job.target_steps is None or not record.started_at:
        return None
    return deadline.at(record.started_at)


def update_progress(record: Record, world: World) -> Record:
    """Return the record with the progress that workers report, and the last refusal of spot."""
    progress = with_heartbeats(record.deadline.progress, world.known_heartbeats, current_node(world, record))
    spot = (r for r in record.refusals if r.kind is Kind.NODE and not r.on_demand)
    refused = [r.at for r in spot if r.retry is Retry.CAPACITY]
    # Not in the future: the clock may have been wrong when the refusal was recorded.
    latest = min(max([progress.spot_refused_at, *refused]), world.observed_at)
    progress = updated(progress, spot_refused_at=latest)
    return updated(record, deadline=updated(record.deadline, progress=progress))


def situation(spec: Spec, world: World, record: Record) -> Situation | None:
    """Return the input for the choice between spot and on demand, or None without a deadline."""
    due, target = due_at(spec, record), spec.job.target_steps
    if due is None or target is None:
        return None
    known, node = record.deadline.progress, _live(world, record)
    per_step = known.seconds_per_step or FIRST_SHARE * max(1.0, due - record.started_at) / target
    # A queued TPU does not train, so for the deadline it does not exist. Except if the choice itself has queued it
    # (flex-start), which must not lead to another choice.
    waits = node is None or (_in_queue(node) and not _is_on_demand(record, node))
    mode = (
        Mode.WAIT if node is None or waits else Mode.ON_DEMAND if _is_on_demand(record, node) else Mode.SPOT
    )
    heartbeats = world.known_heartbeats if node is not None else ()
    at = min((heartbeat.step or 0 for heartbeat in heartbeats), default=0)
    works = bool(heartbeats) and all(
        "first_step" in heartbeat.timings or heartbeat.step for heartbeat in heartbeats
    )
    return Situation(
        now=world.observed_at,
        began=record.started_at,
        deadline=due,
        work=target * per_step,
        done=min(known.step, target) * per_step,
        cold=max(60.0, MARGIN * known.cold) if known.cold else FIRST_COLD,
        commit_interval=known.commit_interval or _interval(spec),
        on_demand_usd_hour=on_demand_usd(spec, world, record, node),
        offers=_offers(spec, world, record, mode),
        mode=mode,
        zone=node.zone if node else "",
        unsaved=max(0, at - known.step) * per_step,
        starting=not waits and not works,
        overlaps=may_overlap(spec),
    )


def deadline_status(spec: Spec, world: World, record: Record) -> DeadlineStatus | None:
    """Return the deadline as the status has it, None without a deadline."""
    found = situation(spec, world, record)
    if found is None:
        return None
    due = datetime.fromtimestamp(found.deadline, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    forecast = "missed" if found.now >= found.deadline and found.remaining else on_time(found)
    return DeadlineStatus(due=due, forecast=forecast, mode=found.mode.value)


def to_leave(spec: Spec, world: World, record: Record) -> ModeChoice | None:
    """
    Return what should replace the present TPU, for the deadline or for money; None to keep it.

    A TPU that is requested but not listed is kept, because it may exist; so is one whose heartbeats could not
    be read, because it may be working.
    """
    found = _open(spec, world, record)
    # Unknown is not idle: workers that could not be read may be at work.
    if found is None or _live(world, record) is None or not isinstance(world.heartbeats, Present):
        return None
    choice = choose(found)
    if choice.mode in {found.mode, Mode.WAIT}:
        return None
    if choice.mode is Mode.ON_DEMAND and _barred(spec, world, record, on_demand=True):
        return None
    return choice


def wants_on_demand(spec: Spec, world: World, record: Record) -> bool:
    """
    Return whether the next TPU is requested on demand although the file says spot.

    If on demand is not available either, spot is requested as before.
    """
    found = _open(spec, world, record)
    if found is None:
        return False
    # Computed as if no TPU existed, because the present one is about to be replaced.
    idle = replace(found, mode=Mode.WAIT, zone="", unsaved=0.0, starting=False)
    return choose(idle).mode is Mode.ON_DEMAND and not _barred(spec, world, record, on_demand=True)


def of_mode(record: Record, *, on_demand: bool) -> Record:
    """
    Return the record with only those refusals of TPUs that apply to spot, or to on demand.

    The history of quota applies to what the file asks for only: on demand has a quota of its own.
    """
    fitting = (r for r in record.refusals if r.kind is not Kind.NODE or r.on_demand == on_demand)
    history = (
        tuple(replace(p, full_at=0.0) for p in record.capacity_history)
        if on_demand
        else record.capacity_history
    )
    return replace(record, refusals=tuple(fitting), capacity_history=history)


def wants_flex_start(spec: Spec, record: Record) -> bool:
    """Return whether flex-start is tried before on demand: if the file allows it, and once for each need."""
    allowed = spec.watch.last_resort == "flex-start" and spec.watch.deadline is not None
    return allowed and not any(r.on_demand and r.kind is Kind.NODE for r in record.refusals)


def as_on_demand(decision: Decision, *, flex: bool) -> Decision:
    """Return the decision with its TPUs requested on demand or, with *flex*, as flex-start."""
    changes = (
        replace(change, on_demand=True, flex_start=flex) if change.requests_tpu else change
        for change in decision.changes
    )
    return replace(decision, changes=tuple(changes))


def refusal_of(retry: Retry, *, flex: bool) -> Retry:
    """Return how a refusal affects the next request; one of flex-start does not count against on demand."""
    # A request that may have taken effect keeps its name for the next try.
    return Retry.CAPACITY if flex and retry in {Retry.QUOTA, Retry.PERMANENT} else retry


def _interval(spec: Spec) -> float:
    """Return the seconds between two saves as the file sets them."""
    every = spec.job.checkpoint.every
    return float(every) if isinstance(every, Duration) else FIRST_COMMIT_INTERVAL


def _open(spec: Spec, world: World, record: Record) -> Situation | None:
    """Return the situation while there is a choice: after the deadline the higher price buys nothing."""
    found = situation(spec, world, record) if spec.tpu.spot else None
    return None if found is None or found.now >= found.deadline else found


def _in_queue(node: Node | None) -> bool:
    return node is not None and node.queued is not None and node.queued.state in IN_QUEUE


def _live(world: World, record: Record) -> Node | None:
    node = current_node(world, record)
    return None if node is None or node.state in TERMINAL | {NodeState.DELETING} else node


def _is_on_demand(record: Record, node: Node) -> bool:
    return node.incarnation in record.deadline.on_demand


def _offers(spec: Spec, world: World, record: Record, mode: Mode) -> tuple[Offer, ...]:
    """Return for each of the file's zones the spot price, its availability, and its expected lifetime."""
    spans = [s for s in record.spans if s.kind is Kind.NODE and s.spot is not False]
    lifetime = lifetime_of(
        sum((s.until or world.observed_at) - s.since for s in spans), record.node.preemptions
    )
    cheap, vain = of_mode(record, on_demand=False), _in_vain(record, spans)
    age = world.observed_at - record.deadline.progress.spot_refused_at
    # Without overlap each vain spot request costs a start of the job, so refusals count longer each time.
    believed = AGAIN if may_overlap(spec) else Backoff(BELIEVED / 2, inf).after(vain + 1)
    doubted = mode is Mode.ON_DEMAND and age < believed
    doubted = doubted or _in_queue(_live(world, record))
    usd = hourly_costs(spec, world, record)

    def offer(zone: str) -> Offer:
        one = zone_history(record.capacity_history, zone, record.node.type)
        shut = doubted or create_gate(spec, cheap, zone) > world.observed_at
        available = granted_fraction_in(one, len(spans), vain)
        lasts = (lifetime + one.lived) / (1.0 + one.preemptions)
        return Offer(zone, usd[zone].spot, up=False if shut else None, available=available, lifetime=lasts)

    return tuple(offer(zone) for zone in spec.tpu.zones)


def _in_vain(record: Record, spans: Sequence[Span]) -> int:
    """Return how many times on demand was used since spot was last available."""
    newest = max((incarnation_of(span.name, {}) or 0 for span in spans), default=0)
    return sum(1 for number in record.deadline.on_demand if number > newest)


def _barred(spec: Spec, world: World, record: Record, *, on_demand: bool) -> bool:
    """Return whether no zone may be asked now."""
    known = of_mode(record, on_demand=on_demand)
    ours = replace(known, refusals=tuple(replace(r, on_demand=False) for r in known.refusals))
    if hopeless(ours) is not None:
        return True
    return all(create_gate(spec, known, zone) > world.observed_at for zone in spec.tpu.zones)


def span_spot(record: Record, name: str) -> bool | None:
    """Return False for a TPU requested on demand although the file says spot, None for any other."""
    return False if incarnation_of(name, {}) in record.deadline.on_demand else None


def granted_fraction_in(one: ZoneHistory, granted: int, vain: int) -> float:
    """Return the availability of spot in a zone: from its hours with and without, else from all TPUs so far."""
    with_one, without = sum(hour[1] for hour in one.hours), sum(hour[2] for hour in one.hours)
    if not with_one + without:
        return granted_fraction(granted, granted + vain)
    return granted_fraction(with_one, with_one + max(without, vain))


@dataclass(frozen=True)
class HourlyCost:
    """USD per hour of a TPU in one zone, including the traffic to a bucket elsewhere."""

    spot: float
    on_demand: float


def hourly_costs(spec: Spec, world: World, record: Record) -> dict[str, HourlyCost]:
    """
    Return the prices of each zone; a zone that is not in the table gets another one's.

    If no price is known, the ratio SPOT_PRICE is enough, because prices are only compared with each other.
    """
    tpu_type = record.node.type or spec.tpu.type
    found = {zone: _hourly_cost(world.prices, tpu_type, zone) for zone in spec.tpu.zones}
    other = next((cost for cost in found.values() if cost is not None), HourlyCost(SPOT_PRICE, 1.0))
    return {zone: cost or other for zone, cost in found.items()}


def _hourly_cost(prices: Prices, tpu_type: str, zone: str) -> HourlyCost | None:
    price, way = prices.tpu(tpu_type, zone), prices.egress_hour(zone)
    on_demand = price.on_demand or (price.spot / SPOT_PRICE if price.spot else None)
    if on_demand is None:
        return None
    return HourlyCost((price.spot or on_demand * SPOT_PRICE) + way, on_demand + way)


def on_demand_usd(spec: Spec, world: World, record: Record, node: Node | None) -> float:
    """Return USD per hour on demand in the TPU's zone, or in the file's first zone without one."""
    known = hourly_costs(spec, world, record)
    return known.get(node.zone if node else "", known[spec.tpu.zones[0]]).on_demand
