"""Read and write the object in the bucket that names the winner of a race; it is written once."""

from orchestrator.contract.bucket import limits
from orchestrator.contract.bucket.claim import claim_name, claim_of, named_by
from orchestrator.contract.preemption_notice import SUCCESSOR_TIMEOUT
from orchestrator.domain.names import round_of
from orchestrator.domain.observation import Absent, Claim, Node, NodeState, Observed, Present, Unknown, World
from orchestrator.domain.ports import Store
from orchestrator.domain.record import Record, current_node, has_successors
from orchestrator.errors import NotFoundError, PreconditionError, TpuctlError
from orchestrator.planning.tpu.preemption import still_saving
from orchestrator.planning.tpu.race import current_candidates, open_race


def round_to_read(record: Record, nodes: Observed[tuple[Node, ...]]) -> int:
    """Return the round whose winner is not known, 0 for none. If the record is lost, TPU labels name the round."""
    listed = nodes.value if isinstance(nodes, Present) else ()
    newest = max((round_of(node.labels) for node in listed), default=0)
    if newest > record.race.round:
        return newest
    return record.race.round if open_race(record) else 0


def read_claim(store: Store, race: int, record: Record, nodes: Observed[tuple[Node, ...]]) -> Observed[Claim]:
    """Read who has won a race: Absent if nothing is claimed or the claim names none of the race's TPUs."""
    if not race:
        return Absent()
    try:
        # One byte more than allowed, so that a claim that is too long is recognised and ignored.
        found = store.read(claim_name(race), limit=limits.CLAIM + 1)
    except NotFoundError:
        return Absent()
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)
    return Absent() if found is None else _claimed(found.data, race, record, nodes)


def _claimed(data: bytes, race: int, record: Record, nodes: Observed[tuple[Node, ...]]) -> Observed[Claim]:
    """
    Return the winner that a claim names: a TPU that the record requested in this race, or a listed one.

    Any machine can write a claim, also for future races, so a number that was never assigned is ignored.
    """
    number = named_by(data)
    if number is None:
        return Absent()
    if record.race.round == race and number in {
        record.node.incarnation,
        *(r.incarnation for r in current_candidates(record)),
    }:
        return Present(Claim(race, number))
    if not isinstance(nodes, Present):
        return Unknown(f"TPU #{number} is named, and which TPUs there are is not known")
    listed = {node.incarnation for node in nodes.value if round_of(node.labels) == race}
    return Present(Claim(race, number)) if number in listed else Absent()


def winner(store: Store, record: Record, world: World) -> Observed[Claim]:
    """
    Return who has won the race; claim it for the first READY TPU if no valid claim exists.

    An invalid claim is replaced: any machine could have written it before the race.
    """
    # Unknown is not absent: while the claim cannot be read, no winner may be named.
    if not open_race(record) or not isinstance(world.claim, Absent):
        return world.claim
    node = next(
        (node for node in _runners(record, world) if node.state is NodeState.READY and node.healthy), None
    )
    if node is None or _last_save_is_due(record, world):
        return world.claim
    name, data = claim_name(record.race.round), claim_of(node.incarnation or 0)
    try:
        found = store.read(name, limit=limits.CLAIM + 1)
        before = (
            _claimed(found.data, record.race.round, record, world.nodes) if found is not None else Absent()
        )
        if isinstance(before, Present):
            return before
        # A compare-and-swap: of controller and machines, the bucket lets one name the winner.
        store.write(name, data, if_generation=found.generation if found is not None else 0)
    except PreconditionError:
        return read_claim(store, record.race.round, record, world.nodes)
    except TpuctlError as error:
        return Unknown(error.message, error.retry, error.hint)
    return Present(Claim(record.race.round, node.incarnation or 0))


def _last_save_is_due(record: Record, world: World) -> bool:
    """Return whether the TPU before the successors still saves; a successor named now would resume from less."""
    if not has_successors(record):
        return False
    asked = min((one.requested_at for one in current_candidates(record)), default=world.observed_at)
    node = current_node(world, record)
    return node is not None and still_saving(world, node) and world.observed_at - asked < SUCCESSOR_TIMEOUT


def _runners(record: Record, world: World) -> tuple[Node, ...]:
    """Return the observed TPUs that may win: the newest one, or else those requested beside it."""
    if not has_successors(record):
        node = current_node(world, record)
        return () if node is None else (node,)
    numbers = {one.incarnation for one in current_candidates(record)}
    return tuple(node for node in world.known_nodes if node.incarnation in numbers)
