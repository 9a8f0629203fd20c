"""
A race: TPUs asked for in several zones at once, of which one gets the job.

Each is an incarnation of its own, and all carry the number of their round: the first incarnation of it.
The winner is named by one object in the bucket that can be written only once, by the machine that comes
first or by the controller for the first TPU that it sees READY. Who is not named never starts the job.
"""

from dataclasses import replace

from orchestrator.domain.names import round_of
from orchestrator.domain.observation import Node, NodeState, Present, World
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Candidate, History, Refusal, lasted, newest_incarnation
from orchestrator.domain.spec import Spec
from orchestrator.errors import Retry

WIDTH = 3
"""Most TPUs in one race: two more than are needed."""
SECOND_SIGHT = 30.0
"""Seconds between two sightings of an absence before a loser counts as gone."""
LOST = frozenset({NodeState.PREEMPTED, NodeState.TERMINATED, NodeState.DELETING, NodeState.STOPPED})
REFUSING = frozenset({Retry.CAPACITY, Retry.QUOTA, Retry.PERMANENT})
"""Classes of refusals after which there is surely no TPU; after others an answer may have been lost."""


def races(spec: Spec) -> bool:
    """Say whether TPUs are asked for in several zones at once."""
    return spec.tpu.strategy != "failover" and len(spec.tpu.zones) > 1


def undecided(history: History) -> bool:
    """Say whether a race is under way whose winner is not known."""
    return history.round > 0 and not history.claimed


def candidates(history: History) -> tuple[Candidate, ...]:
    """Return the TPUs that may still win beside the newest one."""
    return tuple(r for r in history.rivals if r.incarnation >= history.round) if undecided(history) else ()


def may_win(node: Node, history: History) -> bool:
    """Say whether a TPU is one that may still win beside the newest one."""
    found = {r.incarnation for r in candidates(history)}
    return node.incarnation in found and node.state not in LOST


def asked_for(
    history: History, zone: str, incarnation: int, race: int, now: float, kind: str = ""
) -> History:
    """
    Return the record that a TPU is about to be asked for: what a killed controller must find.

    *kind* is its type, empty for the preferred one of the file.
    """
    zones = history.zones_used if zone in history.zones_used else (*history.zones_used, zone)
    history = replace(
        history, zones_used=zones, highest=max(newest_incarnation(history), incarnation),
        remote_failed_since=None, next_remote_at=0.0,
    )  # fmt: skip
    if race and race == history.round and incarnation != history.incarnation:
        return replace(history, rivals=(*history.rivals, Candidate(incarnation, zone, now)))
    return replace(
        history,
        incarnation=incarnation,
        zone=zone,
        type=kind,
        substitute=kind,
        accepted=False,
        requested_at=now,
        round=race,
        claimed=history.claimed and race == history.round,
    )


def accepted(history: History, incarnation: int) -> History:
    """Return the record after the cloud took the create of one incarnation."""
    if incarnation == history.incarnation:
        return replace(history, accepted=True)
    rivals = (replace(r, accepted=True) if r.incarnation == incarnation else r for r in history.rivals)
    return replace(history, rivals=tuple(rivals))


def refused(history: History, refusal: Refusal, incarnation: int | None) -> History:
    """Return the record after a refusal; a rival that surely was not made is none any more."""
    history = replace(history, refusals=(*history.refusals, refusal))
    return without(history, incarnation) if refusal.retry in REFUSING else history


def without(history: History, incarnation: int | None) -> History:
    """Return the record without a candidate that surely is not there."""
    return replace(history, rivals=tuple(r for r in history.rivals if r.incarnation != incarnation))


def found_again(history: History, newest: Node, nodes: tuple[Node, ...]) -> History:
    """Return the record with the race of a TPU that it did not know, all others of that race being candidates."""
    race = round_of(newest.labels)
    others = tuple(
        Candidate(n.incarnation or 0, n.zone, n.created_at, accepted=True)
        for n in nodes
        if race and round_of(n.labels) == race and n.incarnation != newest.incarnation
    )
    return replace(history, round=race, claimed=False, rivals=others, highest=newest.incarnation or 0)


def learn_race(history: History, world: World) -> History:
    """Return the record with the winner, or else with the best candidate, as the newest TPU."""
    nodes = world.nodes.value if isinstance(world.nodes, Present) else ()
    seen = {n.incarnation: n for n in nodes}
    known = tuple(
        r if r.accepted or r.incarnation not in seen else replace(r, accepted=True) for r in history.rivals
    )
    history = replace(history, rivals=known) if known != history.rivals else history
    if undecided(history):
        claim = world.claim.value if isinstance(world.claim, Present) else None
        if claim is not None and claim.round == history.round:
            history = _won(history, claim.incarnation, seen, world.seen_at)
        elif isinstance(world.nodes, Present):
            history = _led(history, seen)
    return _without_the_gone(history, world)


def _won(history: History, incarnation: int, seen: dict[int | None, Node], now: float) -> History:
    """Make the named TPU the newest one; one that the record does not know was taken for refused, and is there."""
    if incarnation != history.incarnation:
        stranger = seen.get(incarnation)
        zone = stranger.zone if stranger else history.zone
        known = {r.incarnation: r for r in history.rivals}
        history = _promoted(history, known.get(incarnation, Candidate(incarnation, zone, now, accepted=True)))
    return replace(history, claimed=True)


def _led(history: History, seen: dict[int | None, Node]) -> History:
    """Let the candidate lead that is nearest to being of use."""
    leader = Candidate(history.incarnation, history.zone, history.requested_at, history.accepted)
    refused = _refused(history)
    best = max((leader, *candidates(history)), key=lambda c: _rank(c, seen, gone=refused and c is leader))
    return history if best is leader else _promoted(history, best, forget=refused)


def _rank(one: Candidate, seen: dict[int | None, Node], *, gone: bool) -> int:
    node = seen.get(one.incarnation)
    if gone or (node is not None and node.state in LOST):
        return 0
    if node is None:
        return 2 if one.accepted else 1
    return 4 if node.state is NodeState.READY and node.healthy else 3


def _refused(history: History) -> bool:
    """Say whether the newest TPU surely does not exist."""
    if history.accepted:
        return False
    here = [r for r in history.refusals if r.kind is Kind.NODE and r.zone == history.zone]
    last = here[-1] if here else None
    return history.requested_at == 0 or (
        last is not None and last.at >= history.requested_at and last.retry in REFUSING
    )


def _promoted(history: History, one: Candidate, *, forget: bool = False) -> History:
    before = Candidate(history.incarnation, history.zone, history.requested_at, history.accepted)
    others = tuple(r for r in history.rivals if r.incarnation != one.incarnation)
    return replace(
        history,
        incarnation=one.incarnation,
        zone=one.zone,
        requested_at=one.requested_at,
        accepted=one.accepted,
        rivals=others if forget else (*others, before),
        highest=newest_incarnation(history),
    )


def _without_the_gone(history: History, world: World) -> History:
    """Forget losers that are surely not there: a create whose answer was lost may still make one."""
    if not history.rivals or not isinstance(world.nodes, Present):
        return history
    here = {n.incarnation for n in world.nodes.value}
    racing = {r.incarnation for r in candidates(history)}
    coming = {o.incarnation for o in history.operations if (o.kind, o.verb) == ("node", "create")}
    left = tuple(
        r
        for r in history.rivals
        if r.incarnation in here | racing | coming
        or not lasted(history, world, f"node:{r.incarnation}:absent", SECOND_SIGHT)
    )
    return replace(history, rivals=left) if left != history.rivals else history
