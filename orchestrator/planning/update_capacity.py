"""Remember what zones granted, refused and took away, from what a pass sees."""

from dataclasses import replace

from orchestrator.domain.capacity import Places, after_full, after_grant, after_loss, after_refusal, place_of
from orchestrator.domain.observation import Node, NodeState, Present, World
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import TERMINAL, History, Refusal
from orchestrator.errors import Retry
from orchestrator.planning.preemption import left

LACKING = frozenset({Retry.CAPACITY, Retry.QUOTA})


def learn_capacity(history: History, world: World) -> History:
    """Return the record with what is new about the zones' capacity; each refusal, grant and loss counts once."""
    places = _refusals(_shared(history.places, history, world), history)
    racing = {history.incarnation, *(rival.incarnation for rival in history.rivals)} - set(history.on_demand)
    for node in world.nodes.value if isinstance(world.nodes, Present) else ():
        if node.incarnation in racing:
            places = _of_node(places, node, history, world)
    return history if places is history.places else replace(history, places=places)


def _shared(places: Places, history: History, world: World) -> Places:
    """Return the memory with the stockouts that other deployments of this computer have met."""
    for told in world.stockouts:
        known = place_of(places, told.zone, history.type)
        if told.type == history.type and told.out_at > max(known.out_at, known.granted_at):
            places = after_refusal(places, told.zone, history.type, told.out_at)
    return places


def _refusals(places: Places, history: History) -> Places:
    last = {one.zone: max(one.out_at, one.granted_at) for one in places if one.type == history.type}
    for refusal in history.refusals:
        if refusal.full and not refusal.on_demand:
            places = after_full(places, refusal.zone, history.type, refusal.at)
        if refusal.at > last.get(refusal.zone, 0.0) and _tells_of_capacity(refusal):
            places = after_refusal(places, refusal.zone, history.type, refusal.at)
            last[refusal.zone] = refusal.at
    return places


def _tells_of_capacity(refusal: Refusal) -> bool:
    lacking = refusal.kind is Kind.NODE and refusal.retry in LACKING
    return lacking and not refusal.full and not refusal.on_demand


def _of_node(places: Places, node: Node, history: History, world: World) -> Places:
    key, now = f"node:{node.incarnation}", world.seen_at
    ready = history.sightings.get(f"{key}:ready")
    if ready is None:
        fresh = node.state is NodeState.READY and node.healthy
        return after_grant(places, node.zone, history.type, now) if fresh else places
    lost = node.state in TERMINAL or left(world, node)
    if lost and f"{key}:left" not in history.sightings:
        return after_loss(places, node.zone, history.type, now, now - ready)
    return places
