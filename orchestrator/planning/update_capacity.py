"""Remember what zones granted, refused and took away, from what a pass sees."""

from dataclasses import replace

from orchestrator.domain.capacity import Places, after_full, after_grant, after_loss, after_refusal, place_of
from orchestrator.domain.first_seen import Sign, of_node
from orchestrator.domain.observation import Node, NodeState, Present, World
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import TERMINAL, Record, Refusal
from orchestrator.errors import Retry
from orchestrator.planning.preemption import left

LACKING = frozenset({Retry.CAPACITY, Retry.QUOTA})


def learn_capacity(record: Record, world: World) -> Record:
    """Return the record with what is new about the zones' capacity; each refusal, grant and loss counts once."""
    places = _refusals(_shared(record.places, record, world), record)
    racing = {record.node.incarnation, *(rival.incarnation for rival in record.race.rivals)} - set(
        record.deadline.on_demand
    )
    for node in world.nodes.value if isinstance(world.nodes, Present) else ():
        if node.incarnation in racing:
            places = _of_node(places, node, record, world)
    return record if places is record.places else replace(record, places=places)


def _shared(places: Places, record: Record, world: World) -> Places:
    """Return the memory with the stockouts that other deployments of this computer have met."""
    for told in world.stockouts:
        known = place_of(places, told.zone, record.node.type)
        if told.type == record.node.type and told.out_at > max(known.out_at, known.granted_at):
            places = after_refusal(places, told.zone, record.node.type, told.out_at)
    return places


def _refusals(places: Places, record: Record) -> Places:
    last = {one.zone: max(one.out_at, one.granted_at) for one in places if one.type == record.node.type}
    for refusal in record.refusals:
        if refusal.full and not refusal.on_demand:
            places = after_full(places, refusal.zone, record.node.type, refusal.at)
        if refusal.at > last.get(refusal.zone, 0.0) and _tells_of_capacity(refusal):
            places = after_refusal(places, refusal.zone, record.node.type, refusal.at)
            last[refusal.zone] = refusal.at
    return places


def _tells_of_capacity(refusal: Refusal) -> bool:
    lacking = refusal.kind is Kind.NODE and refusal.retry in LACKING
    return lacking and not refusal.full and not refusal.on_demand


def _of_node(places: Places, node: Node, record: Record, world: World) -> Places:
    now = world.seen_at
    ready = record.first_seen.get(of_node(node.incarnation, NodeState.READY))
    if ready is None:
        fresh = node.state is NodeState.READY and node.healthy
        return after_grant(places, node.zone, record.node.type, now) if fresh else places
    lost = node.state in TERMINAL or left(world, node)
    if lost and of_node(node.incarnation, Sign.LEFT) not in record.first_seen:
        return after_loss(places, node.zone, record.node.type, now, now - ready)
    return places
