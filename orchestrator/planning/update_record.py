"""How the record learns from what a pass sees: every function here is pure."""

from dataclasses import replace

from orchestrator.domain.observation import (
    Absent,
    Node,
    NodeState,
    OperationResult,
    Present,
    VmState,
    World,
)
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import (
    LATEST_TRY,
    TERMINAL,
    History,
    Refusal,
    Span,
    current_node,
    deletion_key,
    forgiven,
    lasted,
    newest_incarnation,
    noted,
    stranger_key,
    strangers,
)
from orchestrator.errors import Retry
from orchestrator.planning.never_reported import learn_mute
from orchestrator.planning.on_demand import learn_progress, refusal_of, span_spot
from orchestrator.planning.preemption import left
from orchestrator.planning.queued_tpu import doubts as doubts_in_queue
from orchestrator.planning.queued_tpu import learn_places
from orchestrator.planning.race import SECOND_SIGHT, found_again, learn_race, without
from orchestrator.planning.stale_list import made
from orchestrator.planning.update_capacity import learn_capacity
from orchestrator.planning.vm_start import vm_doubts
from orchestrator.pricing.billed_since import billed_since, last_creating

FORGIVEN = 3600.0
"""Seconds after which a refusal counts no more: what was refused then is asked for again."""


def learn(history: History, world: World) -> History:
    """Return the history with what *world* adds to it."""
    now = world.seen_at
    history = _adopt(_up_to(history, now), world)
    for result in world.operations:
        history = _learn_operation(history, result, now)
    history = _heard(history, world)
    history = learn_capacity(learn_places(learn_race(history, world), world), world)
    history = _learn_success(history, world)
    history = learn_mute(learn_progress(history, world), world)
    history = noted(history, spans=_spans(history, world, now))
    return noted(history, sightings=_sightings(history, world, now))


def _up_to(history: History, now: float) -> History:
    """
    Return the history with no time after *now* and no old refusal.

    A clock that was wrong must not make us wait for hours, nor a quota that was used up end us for ever.
    """
    return noted(
        history,
        started_at=min(history.started_at, now),
        requested_at=min(history.requested_at, now),
        granted_at=min(history.granted_at, now),
        next_remote_at=min(history.next_remote_at, now + LATEST_TRY),
        remote_failed_since=None
        if history.remote_failed_since is None
        else min(history.remote_failed_since, now),
        refusals=tuple(
            r if r.at <= now else replace(r, at=now) for r in history.refusals if now - r.at < FORGIVEN
        ),
        sightings={key: min(since, now) for key, since in history.sightings.items()},
        mute=tuple((number, min(at, now)) for number, at in history.mute),
        operations=tuple(
            o if o.started_at <= now else replace(o, started_at=now) for o in history.operations
        ),
    )


def _adopt(history: History, world: World) -> History:
    """Take over what carries our label though the record does not know it."""
    if isinstance(world.bucket, Present):
        history = noted(history, bucket_seen=True)
    if isinstance(world.vm, Present):
        history = noted(history, vm_accepted=True)
    if not isinstance(world.nodes, Present):
        return history
    doubtful = {
        n.name for n in strangers(world, history) if not lasted(history, world, stranger_key(n), SECOND_SIGHT)
    }
    newest = max(
        (n for n in world.nodes.value if n.incarnation and n.name not in doubtful),
        key=lambda n: n.incarnation or 0,
        default=None,
    )
    if newest is not None and (newest.incarnation or 0) <= newest_incarnation(history):
        newest = current_node(world, history)
    if newest is None:
        return history
    zones = history.zones_used if newest.zone in history.zones_used else (*history.zones_used, newest.zone)
    fresh = newest.incarnation != history.incarnation
    history = found_again(history, newest, world.nodes.value) if fresh else history
    return noted(
        history,
        incarnation=newest.incarnation or 0,
        zone=newest.zone,
        accepted=True,
        zones_used=zones,
        requested_at=newest.created_at if fresh else history.requested_at,
    )


def _heard(history: History, world: World) -> History:
    """
    Return the history with the TPU as accepted whose workers report, whatever the answer to its create was.

    Asked for again by its own name after it has vanished, a second machine would write under its number.
    """
    beats = (*world.heartbeats.value, *world.boots) if isinstance(world.heartbeats, Present) else ()
    refused = [r.retry for r in history.refusals if r.kind is Kind.NODE]
    unsure = history.requested_at > 0 and (not refused or refused[-1] in {Retry.TRANSIENT, Retry.UNKNOWN})
    spoken = unsure and any(b.incarnation == history.incarnation for b in beats)
    return noted(history, accepted=True) if spoken else history


def _learn_operation(history: History, result: OperationResult, now: float) -> History:
    if not result.done:
        return history
    operations = tuple(o for o in history.operations if o.id != result.operation.id)
    history = replace(history, operations=operations)
    failed = result.retry is not None
    done = result.operation
    if failed and done.kind == "vm" and done.verb in {"create", "start"}:
        accepted = history.vm_accepted and done.verb == "start"
        return replace(history, vm_accepted=accepted, refusals=_refused(history, result, now))
    if failed and done.kind == "node" and done.verb == "create" and done.incarnation == history.incarnation:
        refusals = _refused(history, result, now)
        return replace(history, accepted=False, requested_at=0.0, refusals=refusals)
    if failed and done.kind == "node" and done.verb == "create" and _races(history, done.incarnation):
        return without(replace(history, refusals=_refused(history, result, now)), done.incarnation)
    if not failed and (done.kind, done.verb, done.incarnation) == ("node", "delete", history.incarnation):
        return replace(history, accepted=False, requested_at=0.0)
    if not failed and (done.kind, done.verb) == ("node", "delete"):
        return without(history, done.incarnation)
    return history


def _races(history: History, incarnation: int | None) -> bool:
    return any(r.incarnation == incarnation for r in history.rivals)


def _refused(history: History, result: OperationResult, now: float) -> tuple[Refusal, ...]:
    operation = result.operation
    kind, text = Kind(operation.kind), f"{result.code} {result.message}".strip()
    dear = kind is Kind.NODE and operation.incarnation in history.on_demand
    flex = kind is Kind.NODE and operation.incarnation in history.flex_start
    retry = refusal_of(result.retry or Retry.UNKNOWN, flex=flex)
    return (*history.refusals, Refusal(now, operation.zone, retry, text, kind, result.hint, dear))


def _learn_success(history: History, world: World) -> History:
    node, vm = current_node(world, history), world.vm
    if node is not None and node.state is NodeState.READY:
        history = forgiven(history, Kind.NODE)
    if isinstance(vm, Present) and vm.value.state is VmState.RUNNING:
        history = forgiven(history, Kind.VM)
    return history


def _sightings(history: History, world: World, now: float) -> dict[str, float]:
    """
    Return the doubtful states seen now, each with the time it was first seen without a break.

    On Unknown the old sightings stay: not seeing is no evidence for either side. Only the absence of a node
    has to be seen anew: it is believed after two complete lists in a row.
    """
    seen, kept = vm_doubts(world.vm)
    if isinstance(world.bucket, Absent):
        seen.add("bucket:absent")
    elif not isinstance(world.bucket, Present):
        kept.add("bucket:absent")
    if isinstance(world.nodes, Present):
        node = current_node(world, history)
        seen |= _node_doubts(node, history.incarnation)
        here = {n.incarnation: n for n in world.nodes.value} if history.rivals else {}
        for rival in history.rivals:
            seen |= _node_doubts(here.get(rival.incarnation), rival.incarnation)
        # What has left does not come back, so a report that cannot be read later changes nothing.
        (seen if node is not None and left(world, node) else kept).add(f"node:{history.incarnation}:left")
        seen |= {stranger_key(n) for n in strangers(world, history)}
        seen |= {deletion_key(n.name) for n in world.nodes.value if n.state is NodeState.DELETING}
        kept |= {deletion_key(n.name) for n in world.nodes.value}
    else:
        doubts = (key for key in history.sightings if key.startswith(("node:", "deleting:")))
        kept |= {key for key in doubts if not key.endswith(":absent")}
    found = {key: history.sightings.get(key, now) for key in seen | (kept & set(history.sightings))}
    return {**found, **made(history, world), **last_creating(history, world, now)}


def _node_doubts(node: Node | None, incarnation: int) -> set[str]:
    key = f"node:{incarnation}"
    if node is None:
        return {f"{key}:absent"}
    doubts = {f"{key}:{node.state.name.lower()}"} | doubts_in_queue(node)
    if not node.healthy:
        doubts.add(f"{key}:unhealthy")
    if node.maintenance is not None:
        doubts.add(f"{key}:maintenance")
    return doubts


def _span(node: Node, history: History, now: float) -> Span:
    """Return the beginning of the bill of a TPU; its type is told where it is not the preferred one."""
    newest = {history.incarnation, *(r.incarnation for r in history.rivals)}
    kind = history.substitute if node.incarnation in newest else ""
    spot = span_spot(history, node.name)
    return Span("node", node.name, node.zone, billed_since(node, history, now), spot=spot, type=kind)


def _spans(history: History, world: World, now: float) -> tuple[Span, ...]:
    """Open a span for what is billed now and close those of what is surely not."""
    live: dict[tuple[str, str], Span] = {}
    sure = {"vm"} if isinstance(world.vm, Present | Absent) else set()
    if isinstance(world.nodes, Present):
        sure.add("node")
        billed = (
            n
            for n in world.nodes.value
            if n.machine and n.state not in TERMINAL and n.state is not NodeState.CREATING
        )
        nodes = [_span(n, history, now) for n in billed]
        live |= {("node", node.name): node for node in nodes}
    if isinstance(world.vm, Present) and world.vm.value.state is not VmState.TERMINATED:
        vm = world.vm.value
        live[("vm", vm.name)] = Span("vm", vm.name, vm.zone, now)
    spans = tuple(
        replace(s, until=now) if s.until is None and s.kind in sure and (s.kind, s.name) not in live else s
        for s in history.spans
    )
    open_now = {(s.kind, s.name) for s in spans if s.until is None}
    return (*spans, *(span for key, span in live.items() if key not in open_now))
