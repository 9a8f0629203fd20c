"""
Race several TPUs: request them in several zones at once, and give the job to one.

Each is an incarnation of its own, and all carry the number of their round, which is its first incarnation.
The winner is named by one object in the bucket that can be written only once, by the machine that comes first
or by the controller for the first TPU that it observes READY. A TPU that is not named never starts the job.
"""

from dataclasses import replace

from orchestrator.domain import names
from orchestrator.domain.first_seen import Condition, of_name, of_node
from orchestrator.domain.machines.data_disks import data_disks
from orchestrator.domain.names import region_of, round_of
from orchestrator.domain.observation import Node, NodeState, Present, Unknown, World
from orchestrator.domain.plan import Change, Decision, Kind, LoopRule, Verb
from orchestrator.domain.record import (
    Candidate,
    RaceRecord,
    Record,
    Refusal,
    as_absent,
    current_node,
    has_successors,
    newest_incarnation,
    next_incarnation,
    surely_absent,
)
from orchestrator.domain.spec import Spec
from orchestrator.domain.updated import updated
from orchestrator.errors import Retry
from orchestrator.planning.tpu.next_zone import (
    create_gate,
    held_back,
    quota_held,
    waits_for_quota,
    zone_order,
)
from orchestrator.planning.tpu.tpu_types import current_type

FIRST, WIDEST = 2, 8
"""TPUs in a race before any refusal, and at most; each extra one is billed from READY until it is deleted."""
LATE = 300.0
"""Seconds after which other TPUs may be requested beside one that is still CREATING."""
LOST = frozenset({NodeState.PREEMPTED, NodeState.TERMINATED, NodeState.DELETING, NodeState.STOPPED})
REFUSING = frozenset({Retry.CAPACITY, Retry.QUOTA, Retry.PERMANENT})
"""Classes of refusals after which the TPU certainly does not exist; after others an answer may have been lost."""


def races(spec: Spec) -> bool:
    """Return whether TPUs are requested in several zones at once."""
    return spec.tpu.strategy != "failover" and len(spec.tpu.zones) > 1


def open_race(record: Record) -> bool:
    """Return whether a race without a known winner is under way, for the newest TPU or for its successors."""
    return record.race.round > 0 and not record.race.claimed


def undecided(record: Record) -> bool:
    """Return whether the newest TPU is in a race that it may still lose."""
    return open_race(record) and not has_successors(record)


def current_candidates(record: Record) -> tuple[Candidate, ...]:
    """Return the TPUs that may still win besides the newest one."""
    candidates = record.race.candidates if open_race(record) else ()
    return tuple(candidate for candidate in candidates if candidate.incarnation >= record.race.round)


def may_win(node: Node, record: Record) -> bool:
    """Return whether *node* is a candidate besides the newest TPU."""
    found = {candidate.incarnation for candidate in current_candidates(record)}
    return node.incarnation in found and node.state not in LOST


def with_request(
    record: Record,
    zone: str,
    incarnation: int,
    race_round: int,
    now: float,
    tpu_type: str = "",
    *,
    beside: bool = False,
) -> Record:
    """
    Return the record to store before a TPU is requested, so that a killed controller's request is found.

    *tpu_type* is empty if the journal of an earlier version does not name it. With *beside* the working TPU
    stays the newest one, and the requested TPU becomes a candidate.
    """
    zones = record.zones_used if zone in record.zones_used else (*record.zones_used, zone)
    record = replace(
        record,
        zones_used=zones,
        node=replace(record.node, highest=max(newest_incarnation(record), incarnation)),
        ssh=replace(record.ssh, failed_since=None, next_try_at=0.0),
        # If the request is made again: that the TPU was absent before it says nothing about what it makes.
        first_seen={
            key: at for key, at in record.first_seen.items() if key != of_node(incarnation, Condition.ABSENT)
        },
    )
    # Another candidate of a race: the newest TPU stays.
    again = race_round == record.race.round
    if race_round and incarnation != record.node.incarnation and (again or beside):
        claimed = record.race.claimed and again
        candidates = (*record.race.candidates, Candidate(incarnation, zone, now))
        return replace(record, race=RaceRecord(race_round, claimed, candidates))
    return replace(
        record,
        node=replace(
            record.node, incarnation=incarnation, zone=zone, type=tpu_type, accepted=False, requested_at=now
        ),
        race=replace(
            record.race, round=race_round, claimed=record.race.claimed and race_round == record.race.round
        ),
    )


def accepted(record: Record, incarnation: int) -> Record:
    """Return the record after the cloud accepted the create of one incarnation."""
    if incarnation == record.node.incarnation:
        return replace(record, node=replace(record.node, accepted=True))
    candidates = (
        replace(candidate, accepted=True) if candidate.incarnation == incarnation else candidate
        for candidate in record.race.candidates
    )
    return replace(record, race=replace(record.race, candidates=tuple(candidates)))


def refused(record: Record, refusal: Refusal, incarnation: int | None) -> Record:
    """Return the record after a refusal; a candidate that was clearly refused leaves the race."""
    record = replace(record, refusals=(*record.refusals, refusal))
    # After a transient failure the TPU may still exist, and dropping it here would leak it.
    newest = incarnation == record.node.incarnation
    return as_absent(record, incarnation) if not newest and refusal.retry in REFUSING else record


def found_again(record: Record, newest: Node, nodes: tuple[Node, ...]) -> Record:
    """Return the record with an unrecorded TPU as the newest one, and the others of its race as candidates."""
    race_round = round_of(newest.labels)
    others = tuple(
        Candidate(n.incarnation or 0, n.zone, n.created_at, accepted=True)
        for n in nodes
        if race_round and round_of(n.labels) == race_round and n.incarnation != newest.incarnation
    )
    return replace(
        record,
        race=replace(record.race, round=race_round, claimed=False, candidates=others),
        node=replace(record.node, highest=newest.incarnation or 0),
    )


def update_race(record: Record, world: World) -> Record:
    """Return the record whose newest TPU is the winner of the race or, without one, the best candidate."""
    listed = {n.incarnation: n for n in world.known_nodes}
    candidates = tuple(
        candidate
        if candidate.accepted or candidate.incarnation not in listed
        else replace(candidate, accepted=True)
        for candidate in record.race.candidates
    )
    record = updated(record, race=updated(record.race, candidates=candidates))
    if open_race(record):
        # The claim decides, not what was observed first: a machine may have started the job meanwhile.
        claim = world.claim.value if isinstance(world.claim, Present) else None
        if claim is not None and claim.round == record.race.round:
            record = _with_winner(record, claim.incarnation, listed, world.observed_at)
        elif isinstance(world.nodes, Present) and (undecided(record) or _newest_ended(record, world)):
            record = _with_best_candidate(record, listed)
    return _without_absent_candidates(record, world)


def _with_winner(record: Record, incarnation: int, listed: dict[int | None, Node], now: float) -> Record:
    """
    Return the record with the TPU that the claim names as the newest one.

    The record may lack it: its create seemed to be refused, but it exists and has started the job.
    """
    if incarnation != record.node.incarnation:
        observed = listed.get(incarnation)
        zone = observed.zone if observed else record.node.zone
        known = {candidate.incarnation: candidate for candidate in record.race.candidates}
        record = _with_newest(
            record, known.get(incarnation, Candidate(incarnation, zone, now, accepted=True))
        )
    return replace(record, race=replace(record.race, claimed=True))


def _newest_ended(record: Record, world: World) -> bool:
    """
    Return whether the newest TPU, whose successors are requested, has certainly ended or is ending.

    False in the pass that first observes its end: that pass still has to report and count the preemption.
    """
    number, node = record.node.incarnation, current_node(world, record)
    if node is None:
        return record.node.requested_at == 0 or surely_absent(record, world, number)
    signs = {
        of_node(number, node.state),
        of_name(node.name, Condition.DELETION_REQUESTED),
    } & record.first_seen.keys()
    return node.state in LOST and bool(signs)


def _with_best_candidate(record: Record, listed: dict[int | None, Node]) -> Record:
    """Return the record with the candidate closest to READY as the newest TPU."""
    leader = _newest_as_candidate(record)
    refused = newest_refused(record)
    # A TPU whose end was observed cannot win, even if a stale list still shows it as READY.
    runners = current_candidates(record) if has_successors(record) else (leader, *current_candidates(record))
    ranked = {c: _readiness(c, listed, lost=refused and c is leader) for c in runners}
    best = max(ranked, key=lambda c: ranked[c], default=leader)
    return record if best is leader else _with_newest(record, best, forget=refused)


def _readiness(one: Candidate, listed: dict[int | None, Node], *, lost: bool) -> int:
    node = listed.get(one.incarnation)
    if lost or (node is not None and node.state in LOST):
        return 0
    if node is None:
        return 2 if one.accepted else 1
    return 4 if node.state is NodeState.READY and node.healthy else 3


def newest_refused(record: Record) -> bool:
    """Return whether the newest TPU was clearly refused, so that it does not exist."""
    if record.node.accepted:
        return False
    here = [r for r in record.refusals if r.kind is Kind.NODE and r.zone == record.node.zone]
    last = here[-1] if here else None
    return record.node.requested_at == 0 or (
        last is not None and last.at >= record.node.requested_at and last.retry in REFUSING
    )


def _newest_as_candidate(record: Record) -> Candidate:
    node = record.node
    return Candidate(node.incarnation, node.zone, node.requested_at, node.accepted)


def _with_newest(record: Record, one: Candidate, *, forget: bool = False) -> Record:
    others = tuple(
        candidate for candidate in record.race.candidates if candidate.incarnation != one.incarnation
    )
    return replace(
        record,
        node=replace(
            record.node,
            incarnation=one.incarnation,
            zone=one.zone,
            requested_at=one.requested_at,
            accepted=one.accepted,
            highest=newest_incarnation(record),
        ),
        race=replace(record.race, candidates=others if forget else (*others, _newest_as_candidate(record))),
    )


def _without_absent_candidates(record: Record, world: World) -> Record:
    """Return the record without candidates that certainly do not exist; the others stay, to be deleted."""
    if not record.race.candidates or not isinstance(world.nodes, Present):
        return record
    # Any one of these means that it may be billed: listed, still able to win, or being created.
    here = {n.incarnation for n in world.known_nodes}
    # Candidates stay until the race is decided, but a working TPU does not wait for a successor that
    # was never created.
    racing = (
        set()
        if has_successors(record)
        else {candidate.incarnation for candidate in current_candidates(record)}
    )
    coming = {o.incarnation for o in record.operations if (o.kind, o.verb) == (Kind.NODE, Verb.CREATE)}
    candidates = tuple(
        candidate
        for candidate in record.race.candidates
        if candidate.incarnation in here | racing | coming
        or not surely_absent(record, world, candidate.incarnation)
    )
    return updated(record, race=updated(record.race, candidates=candidates))


def width(record: Record) -> int:
    """Return how many TPUs may race: FIRST, doubled for each full round of refusals, up to WIDEST."""
    lacking = (r for r in record.refusals if r.kind is Kind.NODE and r.retry in {Retry.CAPACITY, Retry.QUOTA})
    refused, wide = sum(1 for _ in lacking), FIRST
    while wide <= refused and wide < WIDEST:
        refused, wide = refused - wide, 2 * wide
    return min(wide, WIDEST)


def beside(spec: Spec, world: World, record: Record, message: str) -> tuple[Change, ...]:
    """Return the requests for successors of a TPU that keeps working until one of them wins."""
    # The winner is named in the bucket, so without a bucket there is no race.
    sure = isinstance(world.bucket, Present) and not isinstance(world.claim, Unknown)
    if not sure or current_candidates(record):
        return ()
    found = new_round(spec, world, record, message).changes
    return tuple(replace(change, beside=True) for change in (found if races(spec) else found[:1]))


def may_overlap(spec: Spec) -> bool:
    """Return whether a TPU can be created while the one before it works."""
    # A disk that the job writes to is free only after the TPU's deletion, and queued requests start at
    # an unknown time.
    apart = spec.tpu.request != "node" or any(disk.writable for disk in data_disks(spec))
    return spec.job.run_on == "tpu" and not apart


def new_round(spec: Spec, world: World, record: Record, message: str) -> Decision:
    """Request a TPU in each of the first zones that may be asked now; if there is none, wait for the first."""
    zones = zone_order(spec, record, world.observed_at, world.prices)
    ready = [zone for zone in zones if _free(spec, world, record, zone)]
    free = [zone for zone in ready if _may_meet(spec, zone, ready[0])][: width(record)]
    if not free:
        soonest = min(zones, key=lambda zone: create_gate(spec, record, zone))
        wait = held_back(spec, record, world, Kind.NODE, soonest)
        return wait or waits_for_quota(soonest)
    return Decision(_creates(spec, record, free, next_incarnation(record), message), rule=LoopRule.TPU_CREATE)


def joining(spec: Spec, world: World, record: Record) -> tuple[Change, ...]:
    """
    Return the requests that join the race under way, in zones that may be asked.

    None while a TPU is being created, because it will probably be READY before any other.
    """
    if not races(spec) or not undecided(record) or isinstance(world.claim, Unknown):
        return ()
    candidates = current_candidates(record)
    room = width(record) - 1 - len(candidates)
    # Before the zones are ranked: in nearly every pass the race is full.
    if room <= 0 or _coming(world, record):
        return ()
    taken = {record.node.zone, *(one.zone for one in candidates)}
    zones = zone_order(spec, record, world.observed_at, world.prices)
    others = [zone for zone in zones if zone not in taken and _may_meet(spec, zone, record.node.zone)]
    free = [zone for zone in others if _free(spec, world, record, zone)][:room]
    return _creates(spec, record, free, record.race.round, "a place in the race is free")


def _coming(world: World, record: Record) -> bool:
    """Return whether a TPU of the race is being created, for less than LATE seconds."""
    asked = {
        one.incarnation: one.requested_at
        for one in (_newest_as_candidate(record), *current_candidates(record))
    }
    return any(
        node.state is NodeState.CREATING and world.observed_at - asked[node.incarnation] < LATE
        for node in world.known_nodes
        if node.incarnation in asked
    )


def _may_meet(spec: Spec, zone: str, other: str) -> bool:
    """Return whether two zones may be in one race; zones of several regions only if the file allows it."""
    return spec.tpu.strategy == "race-regions" or region_of(zone) == region_of(other)


def _free(spec: Spec, world: World, record: Record, zone: str) -> bool:
    held = held_back(spec, record, world, Kind.NODE, zone)
    return held is None and not quota_held(world, record, zone)


def _creates(
    spec: Spec, record: Record, zones: list[str], race_round: int, message: str
) -> tuple[Change, ...]:
    first = next_incarnation(record)
    tpu_type = current_type(spec, record)
    other = tpu_type != spec.tpu.type
    asked = [(number, names.node_name(spec, number), zone) for number, zone in enumerate(zones, first)]
    return tuple(
        Change(Kind.NODE, Verb.CREATE, name, message, zone, number, race_round, tpu_type, substitute=other)
        for number, name, zone in asked
    )
