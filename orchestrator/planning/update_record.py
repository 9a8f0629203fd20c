"""Update the record with what a pass observed. Every function is pure."""

from dataclasses import replace

from orchestrator.domain.first_seen import BUCKET_ABSENT, Condition, FirstSeen, of_name, of_node
from orchestrator.domain.machines.capacity import (
    CapacityHistory,
    after_full,
    after_grant,
    after_preemption,
    after_refusal,
    zone_history,
)
from orchestrator.domain.observation import (
    Absent,
    Node,
    NodeState,
    OperationResult,
    Present,
    Unknown,
    VmState,
    World,
)
from orchestrator.domain.plan import MAKING, Kind, Verb
from orchestrator.domain.record import (
    CONFIRMED_AFTER,
    LATEST_TRY,
    TERMINAL,
    Record,
    Refusal,
    Span,
    as_absent,
    current_node,
    forgiven,
    has_successors,
    lasted,
    newest_incarnation,
    unrecorded_nodes,
)
from orchestrator.domain.updated import updated
from orchestrator.errors import Retry
from orchestrator.planning.job import from_zero_since, observed_attempts, reports_other_code
from orchestrator.planning.tpu.never_reported import update_first_heartbeats
from orchestrator.planning.tpu.on_demand import refusal_of, span_spot, update_progress
from orchestrator.planning.tpu.preemption import workers_stopped
from orchestrator.planning.tpu.queued_tpu import doubts as doubts_in_queue
from orchestrator.planning.tpu.queued_tpu import update_queue_failures
from orchestrator.planning.tpu.race import found_again, update_race
from orchestrator.planning.tpu.unwatched_end import ended_span
from orchestrator.planning.vm import vm_doubts
from orchestrator.pricing.cost_so_far import (
    billed_since,
    last_creating,
    vm_billed_since,
    vm_billed_until,
)

FORGIVEN = 3600.0
"""Seconds after which a refusal no longer counts, so that the refused resource is requested again."""
LACKING = frozenset({Retry.CAPACITY, Retry.QUOTA})
RESET_WHEN_UNKNOWN = frozenset(
    {Condition.ABSENT, Condition.UNRECORDED, Condition.MADE, Condition.LAST_CREATING}
)
"""Signs that a failed observation resets, or that have functions of their own."""


def update_record(record: Record, world: World) -> Record:
    """Return the record with everything that the observation *world* adds to it."""
    now = world.observed_at
    # Existing resources first: operations below are judged by the newest incarnation.
    record = _record_unrecorded(_up_to(record, now), world)
    for result in world.operations:
        record = _after_operation(record, result, now)
    record = _accepted_by_heartbeat(record, world)
    # The winner before the zones: refusals and grants of a zone count for TPUs of this race only.
    record = update_capacity(update_queue_failures(update_race(record, world), world), world)
    # After this pass's refusals: a resource that works now forgives all before it.
    record = _after_success(record, world)
    record = update_first_heartbeats(update_progress(record, world), world)
    record = updated(record, spans=_spans(record, world, now), disks=_disks(record, world, now))
    # Last: everything above compares this pass with the doubtful states of the pass before.
    return updated(record, first_seen=_doubtful_since(record, world, now))


def _up_to(record: Record, now: float) -> Record:
    """
    Return the record without times after *now* and without refusals older than FORGIVEN.

    A wrong clock must not cause waits of hours, nor an old quota refusal the end of the deployment.
    """
    ssh, silent = record.ssh, record.silence.never_reported
    failed_since = None if ssh.failed_since is None else min(ssh.failed_since, now)
    next_try_at = min(ssh.next_try_at, now + LATEST_TRY)
    return updated(
        record,
        started_at=min(record.started_at, now),
        up_times=tuple(min(start, now) for start in record.up_times),
        node=updated(record.node, requested_at=min(record.node.requested_at, now)),
        bucket=updated(record.bucket, granted_at=min(record.bucket.granted_at, now)),
        ssh=updated(ssh, failed_since=failed_since, next_try_at=next_try_at),
        refusals=tuple(_not_after(r, now) for r in record.refusals if now - r.at < FORGIVEN),
        first_seen={state: min(since, now) for state, since in record.first_seen.items()},
        silence=updated(record.silence, never_reported=tuple((n, min(at, now)) for n, at in silent)),
        operations=tuple(updated(o, started_at=min(o.started_at, now)) for o in record.operations),
    )


def _not_after(refusal: Refusal, now: float) -> Refusal:
    return refusal if refusal.at <= now else replace(refusal, at=now)


def _record_unrecorded(record: Record, world: World) -> Record:
    """Return the record with the resources that carry our label and are not in it yet."""
    if isinstance(world.bucket, Present):
        record = updated(record, bucket=updated(record.bucket, observed=True))
    if isinstance(world.vm, Present):
        record = updated(record, vm=updated(record.vm, accepted=True))
    if not isinstance(world.nodes, Present):
        return record
    doubtful = {
        n.name
        for n in unrecorded_nodes(world, record)
        if not lasted(record, world, of_name(n.name, Condition.UNRECORDED), CONFIRMED_AFTER)
    }
    newest = max(
        (n for n in world.nodes.value if n.incarnation and n.name not in doubtful),
        key=lambda n: n.incarnation or 0,
        default=None,
    )
    # Lists may be stale: an older node must not become the newest one again.
    if newest is not None and (newest.incarnation or 0) <= newest_incarnation(record):
        newest = current_node(world, record)
    if newest is None:
        return record
    zones = record.zones_used if newest.zone in record.zones_used else (*record.zones_used, newest.zone)
    fresh = newest.incarnation != record.node.incarnation
    record = found_again(record, newest, world.nodes.value) if fresh else record
    return updated(
        record,
        node=updated(
            record.node,
            incarnation=newest.incarnation or 0,
            zone=newest.zone,
            accepted=True,
            requested_at=newest.created_at if fresh else record.node.requested_at,
        ),
        zones_used=zones,
    )


def _accepted_by_heartbeat(record: Record, world: World) -> Record:
    """
    Return the record with the TPU as accepted if its workers report, even if its create seemed to fail.

    Otherwise it would be requested again under its name, and a second machine would write under its number.
    """
    refused = [r.retry for r in record.refusals if r.kind is Kind.NODE]
    unsure = record.node.requested_at > 0 and (not refused or refused[-1] in {Retry.TRANSIENT, Retry.UNKNOWN})
    spoken = unsure and any(
        b.incarnation == record.node.incarnation for b in (*world.known_heartbeats, *world.boot_heartbeats)
    )
    return updated(record, node=updated(record.node, accepted=True)) if spoken else record


def _after_operation(record: Record, result: OperationResult, now: float) -> Record:
    """Return the record after an operation was polled; one that has ended is dropped from it."""
    if not result.done:
        return record
    ended, failed = result.operation, result.retry is not None
    record = replace(record, operations=tuple(o for o in record.operations if o.id != ended.id))
    if result.forgotten:
        return record
    what, newest = (ended.kind, ended.verb), ended.incarnation == record.node.incarnation
    # A VM keeps its name, so a failed start leaves it accepted, and a failed create does not.
    if failed and ended.kind is Kind.VM and ended.verb in MAKING:
        accepted = record.vm.accepted and ended.verb is Verb.START
        record = replace(record, vm=replace(record.vm, accepted=accepted))
        return replace(record, refusals=_refused(record, result, now))
    candidate = any(r.incarnation == ended.incarnation for r in record.race.candidates)
    if failed and what == (Kind.NODE, Verb.CREATE) and (newest or candidate):
        record = replace(record, refusals=_refused(record, result, now))
    elif failed or what != (Kind.NODE, Verb.DELETE):
        return record
    return as_absent(record, ended.incarnation)


def _refused(record: Record, result: OperationResult, now: float) -> tuple[Refusal, ...]:
    operation = result.operation
    kind = operation.kind
    on_demand = kind is Kind.NODE and operation.incarnation in record.deadline.on_demand
    flex = kind is Kind.NODE and operation.incarnation in record.deadline.flex_start
    retry = refusal_of(result.retry or Retry.UNKNOWN, flex=flex)
    refusal = Refusal(
        now, operation.zone, retry, result.message, kind, result.hint, on_demand=on_demand, code=result.code
    )
    return (*record.refusals, refusal)


def _after_success(record: Record, world: World) -> Record:
    node, vm = current_node(world, record), world.vm
    if node is not None and node.state is NodeState.READY:
        # Only READY forgives, because an accepted create can still end in the same refusal. A working TPU does not
        # forgive refusals of its successors.
        record = record if has_successors(record) else forgiven(record, Kind.NODE)
    if isinstance(vm, Present) and vm.value.state is VmState.RUNNING:
        record = forgiven(record, Kind.VM)
    return record


def _doubtful_since(record: Record, world: World, now: float) -> dict[FirstSeen, float]:
    """
    Return the doubtful states of this observation, each with the time since which all passes have shown it.

    If something is Unknown, its states stay as they were. The absence of a node is different: it counts only
    after two complete lists in a row, so an incomplete list starts it again.
    """
    observed, unobserved = vm_doubts(world.vm)
    # Absent starts the count, Present ends it, Unknown does neither.
    if isinstance(world.bucket, Absent):
        observed.add(BUCKET_ABSENT)
    elif not isinstance(world.bucket, Present):
        unobserved.add(BUCKET_ABSENT)
    other = of_node(record.node.incarnation, Condition.OTHER_CODE)
    if not isinstance(world.heartbeats, Present):
        unobserved.add(other)
    elif reports_other_code(world, record):
        observed.add(other)
    observed |= observed_attempts(world, record)
    began = of_node(record.node.incarnation, Condition.FROM_ZERO)
    (unobserved if from_zero_since(world, record) is None else observed).add(began)
    if isinstance(world.nodes, Present):
        node = current_node(world, record)
        observed |= _node_doubts(node, record.node.incarnation)
        here = {n.incarnation: n for n in world.nodes.value} if record.race.candidates else {}
        for candidate in record.race.candidates:
            observed |= _node_doubts(here.get(candidate.incarnation), candidate.incarnation)
        # An ended TPU does not come back, so a later unreadable report changes nothing.
        gone = of_node(record.node.incarnation, Condition.WORKERS_STOPPED)
        (observed if node is not None and workers_stopped(world, node) else unobserved).add(gone)
        observed |= {of_name(n.name, Condition.UNRECORDED) for n in unrecorded_nodes(world, record)}
        asked = {of_name(n.name, Condition.DELETION_REQUESTED): n.state for n in world.nodes.value}
        observed |= {key for key, state in asked.items() if state is NodeState.DELETING}
        unobserved |= asked.keys()
    else:
        unobserved |= {
            key for key in record.first_seen if key.kind is Kind.NODE and key.state not in RESET_WHEN_UNKNOWN
        }
    found = {
        key: record.first_seen.get(key, now) for key in observed | (unobserved & record.first_seen.keys())
    }
    return {**found, **made(record, world), **last_creating(record, world, now)}


def _node_doubts(node: Node | None, incarnation: int) -> set[FirstSeen]:
    if node is None:
        return {of_node(incarnation, Condition.ABSENT)}
    doubts = {of_node(incarnation, node.state)} | doubts_in_queue(node)
    if not node.healthy:
        doubts.add(of_node(incarnation, Condition.UNHEALTHY))
    if node.maintenance is not None:
        doubts.add(of_node(incarnation, Condition.MAINTENANCE))
    return doubts


def _span(node: Node, record: Record, now: float) -> Span:
    """Return a TPU's new span, the start of its bill; its type is known only if the TPU may be in use."""
    newest = {record.node.incarnation, *(r.incarnation for r in record.race.candidates)}
    tpu_type = record.node.type if node.incarnation in newest else ""
    spot = span_spot(record, node.name)
    return Span(Kind.NODE, node.name, node.zone, billed_since(node, record, now), spot=spot, type=tpu_type)


def _spans(record: Record, world: World, now: float) -> tuple[Span, ...]:
    """Return the spans with one opened for each billed resource, and those of certainly ended ones closed."""
    live: dict[tuple[Kind, str], Span] = {}
    # An incomplete observation closes no span: what could not be listed may still be billed.
    sure = {Kind.VM} if isinstance(world.vm, Present | Absent) else set()
    if isinstance(world.nodes, Present):
        sure.add(Kind.NODE)
        billed = (
            n
            for n in world.nodes.value
            if n.has_machine and n.state not in TERMINAL and n.state is not NodeState.CREATING
        )
        nodes = [_span(n, record, now) for n in billed]
        live |= {(Kind.NODE, node.name): node for node in nodes}
    if isinstance(world.vm, Present) and world.vm.value.state is not VmState.TERMINATED:
        vm = world.vm.value
        live[(Kind.VM, vm.name)] = Span(Kind.VM, vm.name, vm.zone, vm_billed_since(vm, record, now))
    spans = tuple(
        _ended(s, record, world) if s.until is None and s.kind in sure and (s.kind, s.name) not in live else s
        for s in record.spans
    )
    open_now = {(s.kind, s.name) for s in spans if s.until is None}
    return (*spans, *(span for key, span in live.items() if key not in open_now))


def _ended(span: Span, record: Record, world: World) -> Span:
    if span.kind is Kind.NODE:
        return ended_span(span, record, world)
    return replace(span, until=vm_billed_until(span, world.vm, world.observed_at))


def _disks(record: Record, world: World, now: float) -> tuple[Span, ...]:
    """Return the disk spans: opened for a VM that exists, running or not, closed when it is certainly deleted."""
    if isinstance(world.vm, Absent):
        return tuple(replace(s, until=now) if s.until is None else s for s in record.disks)
    if not isinstance(world.vm, Present) or any(s.until is None for s in record.disks):
        return record.disks
    vm = world.vm.value
    return (*record.disks, Span(Kind.VM, vm.name, vm.zone, vm_billed_since(vm, record, now)))


def not_older(world: World, record: Record) -> World:
    """
    Return *world*, with its TPUs Unknown if one is older than the one observed under its name before.

    The API's lists may lag some seconds. If a deployment is recreated under the same name, such a list shows
    the deleted TPU of its earlier lifetime instead of the one that works. Both times are by the API's clock.
    """
    if not isinstance(world.nodes, Present):
        return world
    old = [node.name for node in world.nodes.value if _is_older(node, record)]
    if not old:
        return world
    return replace(
        world, nodes=Unknown(f"the list shows an earlier {old[0]}: it is older than the one before")
    )


def made(record: Record, world: World) -> dict[FirstSeen, float]:
    """Return the creation times of the TPUs in question, by the API's clock."""
    asked = {record.node.incarnation, *(candidate.incarnation for candidate in record.race.candidates)}
    times = {
        _key(number): record.first_seen[_key(number)] for number in asked if _key(number) in record.first_seen
    }
    for node in world.known_nodes:
        if node.incarnation in asked and node.has_machine and node.created_at:
            times[_key(node.incarnation)] = max(node.created_at, times.get(_key(node.incarnation), 0.0))
    return times


def _is_older(node: Node, record: Record) -> bool:
    # A queued resource without a machine has the time of its request.
    return node.has_machine and 0 < node.created_at < record.first_seen.get(_key(node.incarnation), 0.0)


def _key(incarnation: int | None) -> FirstSeen:
    return of_node(incarnation, Condition.MADE)


def update_capacity(record: Record, world: World) -> Record:
    """Return the record with news about the zones' capacity; each refusal, grant and preemption counts once."""
    history = _refusals(_shared(record.capacity_history, record, world), record)
    racing = {
        record.node.incarnation,
        *(candidate.incarnation for candidate in record.race.candidates),
    } - set(record.deadline.on_demand)
    for node in world.known_nodes:
        if node.incarnation in racing:
            history = _of_node(history, node, record, world)
    return record if history is record.capacity_history else replace(record, capacity_history=history)


def _shared(history: CapacityHistory, record: Record, world: World) -> CapacityHistory:
    """Return the capacity history with the stockouts of other deployments on this computer."""
    # Another deployment has just been refused there, so we need not be refused too.
    for stockout in world.stockouts:
        known = zone_history(history, stockout.zone, record.node.type)
        if stockout.type == record.node.type and stockout.out_at > max(known.out_at, known.granted_at):
            history = after_refusal(history, stockout.zone, record.node.type, stockout.out_at)
    return history


def _refusals(history: CapacityHistory, record: Record) -> CapacityHistory:
    last = {one.zone: max(one.out_at, one.granted_at) for one in history if one.type == record.node.type}
    for refusal in record.refusals:
        if refusal.kind is not Kind.NODE or refusal.on_demand:
            continue
        if refusal.full:
            history = after_full(history, refusal.zone, record.node.type, refusal.at)
        elif refusal.at > last.get(refusal.zone, 0.0) and refusal.retry in LACKING:
            history = after_refusal(history, refusal.zone, record.node.type, refusal.at)
            last[refusal.zone] = refusal.at
    return history


def _of_node(history: CapacityHistory, node: Node, record: Record, world: World) -> CapacityHistory:
    now = world.observed_at
    ready = record.first_seen.get(of_node(node.incarnation, NodeState.READY))
    if ready is None:
        # Counted once, in the first pass that shows it READY.
        fresh = node.state is NodeState.READY and node.healthy
        return after_grant(history, node.zone, record.node.type, now) if fresh else history
    lost = node.state in TERMINAL or workers_stopped(world, node)
    if lost and of_node(node.incarnation, Condition.WORKERS_STOPPED) not in record.first_seen:
        return after_preemption(history, node.zone, record.node.type, now, now - ready)
    return history
