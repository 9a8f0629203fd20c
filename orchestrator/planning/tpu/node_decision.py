"""Decide about TPUs: delete all but the newest incarnation, and request the next one when it is judged lost."""

from dataclasses import replace

from orchestrator.contract.backoff import growing
from orchestrator.domain import names
from orchestrator.domain.first_seen import BUCKET_ABSENT, Condition, of_name
from orchestrator.domain.observation import Absent, Node, NodeState, Unknown, World
from orchestrator.domain.plan import Change, Decision, Kind, LoopRule, Verb
from orchestrator.domain.record import (
    Record,
    Refusal,
    current_node,
    has_successors,
    next_incarnation,
    race_to_win,
    refused_beside,
    unrecorded_nodes,
)
from orchestrator.domain.spec import Spec
from orchestrator.domain.wait import Wait
from orchestrator.errors import Retry
from orchestrator.planning.tpu.deadline import Mode
from orchestrator.planning.tpu.never_reported import (
    as_never_reported,
    with_silent_tpu,
)
from orchestrator.planning.tpu.next_zone import (
    full_zones,
    held_back,
    next_zone,
    quota_held,
    waits_for_quota,
    zone_text,
)
from orchestrator.planning.tpu.node_verdict import (
    CREATE_TIMEOUT,
    NodeAction,
    NodeVerdict,
    judge_node,
    replaces,
)
from orchestrator.planning.tpu.on_demand import (
    as_on_demand,
    of_mode,
    to_leave,
    wants_flex_start,
    wants_on_demand,
)
from orchestrator.planning.tpu.preemption import being_taken, noticed
from orchestrator.planning.tpu.race import (
    beside,
    current_candidates,
    joining,
    may_overlap,
    may_win,
    new_round,
    open_race,
    races,
    undecided,
)
from orchestrator.planning.tpu.tpu_types import current_type, next_type

DELETE_AGAIN = 600.0
"""Seconds after which a node that is still DELETING is deleted once more."""
DELETE_SETTLES = 30.0
"""Seconds after which a node that shows no sign of its deletion is deleted once more."""
NOTICE_POLL = 2.0
"""Seconds between two passes after a preemption notice."""
NEXT_COMES = "TPU: the next one is being made, and gets the job when it is READY"


def decide_node(spec: Spec, world: World, record: Record) -> Decision:
    """
    Return the changes that lead to exactly one usable TPU.

    In this order: losers and leftovers are deleted; the newest TPU is kept, awaited or deleted; then its
    replacement is requested.
    """
    if isinstance(world.nodes, Unknown):
        return Decision(wait=Wait(f"TPU: not known ({world.nodes.message})"), rule=LoopRule.UNKNOWN)
    current = current_node(world, record)
    # A stale list may show a TPU from before the last `up` with a larger number: it counts from the second pass on.
    unknown = unrecorded_nodes(world, record)
    # Losers and leftovers are billed: delete them even while nothing else is decided.
    removals = [delete_node(n, _superseded_message(n, record)) for n in _superseded(world, record)]
    verdict = _for_deadline(spec, world, record, judge_node(spec, current, world, record))
    rule = LoopRule.TPU_RACE if undecided(record) and current_candidates(record) else verdict.rule
    if verdict.action is NodeAction.OVERLAP and not unknown:
        removals += _overlap(spec, world, record, verdict.message)
    if verdict.action in {NodeAction.KEEP, NodeAction.OVERLAP}:
        return replace(_keep(world, record, rule), changes=tuple(removals))
    if verdict.action is NodeAction.WAIT:
        age = world.observed_at - record.node.requested_at
        changes = (*removals, *joining(spec, world, record))
        return Decision(changes, Wait(f"TPU: {verdict.message}"), wake_in=growing(5.0, age), rule=rule)
    if unknown:
        text = f"TPU: {unknown[0].name} is not in the record; a second look makes sure that it is ours"
        return Decision(tuple(removals), Wait(text), wake_in=5.0, rule=rule)
    # A TPU under deletion is not deleted again, and the next one is requested under a new name.
    going = current is None or current.state is NodeState.DELETING
    if verdict.action is NodeAction.REPLACE and current is not None and not going:
        gone = delete_node(current, verdict.deletion_message or verdict.message)
        gone = as_never_reported(gone, world) if verdict.silent else gone
        removals.append(gone)
        # Recorded before the next request is planned, which must not go to the zone of a silent TPU.
        record = with_silent_tpu(record, gone, world.observed_at)
    if has_successors(record) and current_candidates(record):
        return Decision(tuple(removals), Wait(NEXT_COMES), wake_in=NOTICE_POLL, rule=LoopRule.TPU_NEXT)
    if verdict.action is NodeAction.REPLACE and current is not None:
        verdict = replace(verdict, message=replaces(current.incarnation or 0))
    creation = _create(spec, world, record, verdict)
    changes = (*removals, *creation.changes)
    # If nothing can be done now, the rule that holds the request back has decided.
    return replace(creation, changes=changes, rule=rule if changes else creation.rule)


def _superseded(world: World, record: Record) -> list[Node]:
    """Return the TPUs to delete that neither are the newest one nor may become it."""
    current, unknown = current_node(world, record), unrecorded_nodes(world, record)
    old = [node for node in world.known_nodes if node is not current and node not in unknown]
    return [
        node
        for node in old
        if (not may_win(node, record) or _overdue(node, world, record)) and not deleting(node, world, record)
    ]


def _keep(world: World, record: Record, rule: LoopRule) -> Decision:
    """Return what is waited for while the newest TPU stays: its race, or a successor."""
    current, racing = current_node(world, record), undecided(record)
    coming = has_successors(record) and bool(current_candidates(record))
    closely = racing or coming or (current is not None and noticed(world, current))
    what = NEXT_COMES if coming else "TPU: it has yet to win its race" if racing else ""
    rule = LoopRule.TPU_NEXT if coming else rule
    return Decision((), Wait(what) if what else None, wake_in=NOTICE_POLL if closely else None, rule=rule)


def _overdue(node: Node, world: World, record: Record) -> bool:
    """Return whether no successor has won within CREATE_TIMEOUT, so that others may be requested."""
    asked = (
        {one.incarnation: one.requested_at for one in current_candidates(record)}
        if has_successors(record)
        else {}
    )
    return world.observed_at - asked.get(node.incarnation or 0, world.observed_at) >= CREATE_TIMEOUT


def _superseded_message(node: Node, record: Record) -> str:
    if 0 < record.race.round == names.round_of(node.labels) and record.race.claimed:
        return f"TPU #{record.node.incarnation} has won the race"
    if 0 < record.race.round == names.round_of(node.labels) and has_successors(record):
        return f"TPU #{node.incarnation} did not get the job in {CREATE_TIMEOUT / 60:.0f} min"
    return f"TPU #{node.incarnation} is not the newest"


def _for_deadline(spec: Spec, world: World, record: Record, verdict: NodeVerdict) -> NodeVerdict:
    """Return the verdict; OVERLAP or REPLACE if a TPU that could stay is left for the deadline or for money."""
    # Not during a race, because it is not known yet which TPU is ours.
    stays = verdict.action in {NodeAction.KEEP, NodeAction.WAIT} and not undecided(record)
    choice = to_leave(spec, world, record) if stays else None
    if choice is None:
        return verdict
    # Time on demand is the most expensive, so it is used until spot is READY.
    works = verdict.action is NodeAction.KEEP and choice.mode is Mode.SPOT and may_overlap(spec)
    action = NodeAction.OVERLAP if works else NodeAction.REPLACE
    return NodeVerdict(action, LoopRule.TPU_NEXT, f"{choice.message} (deadline)")


def _create(spec: Spec, world: World, record: Record, verdict: NodeVerdict) -> Decision:
    """Request the next TPU, spot or on demand; repeat a request without an answer as it was."""
    again = verdict.action is NodeAction.CREATE and record.node.incarnation > 0
    was = record.node.incarnation in record.deadline.on_demand
    on_demand = was if again else wants_on_demand(spec, world, record)
    request = _request(spec, world, of_mode(record, on_demand=on_demand), verdict)
    flex = record.node.incarnation in record.deadline.flex_start if again else wants_flex_start(spec, record)
    return as_on_demand(request, flex=flex) if on_demand else request


def _overlap(spec: Spec, world: World, record: Record, message: str) -> tuple[Change, ...]:
    """Request a successor of a working TPU, not in a zone that is preempting it."""
    node = current_node(world, record)
    going = node is not None and being_taken(world, node)
    zones = tuple(zone for zone in spec.tpu.zones if not going or zone != record.node.zone)
    # On demand for the deadline is requested when spot is gone; beside a working TPU only spot is requested.
    if not zones or (going and wants_on_demand(spec, world, record)):
        return ()
    return beside(
        replace(spec, tpu=replace(spec.tpu, zones=zones)), world, of_mode(record, on_demand=False), message
    )


def _without_vm(spec: Spec, record: Record) -> Refusal | None:
    """Return why the first VM is refused for good: without it a TPU would be billed in vain."""
    if spec.vm == "none" or record.vm.accepted:
        return None
    final = (r for r in reversed(record.refusals) if r.retry in {Retry.PERMANENT, Retry.QUOTA})
    return next((r for r in final if r.kind is Kind.VM), None)


def _request_blocked(spec: Spec, world: World, record: Record) -> Decision | None:
    """Return why no TPU may be requested now, whatever zone has capacity; None if one may be."""
    # Unknown after Absent still counts as absent here: without a bucket there is no lease.
    missed = isinstance(world.bucket, Unknown) and BUCKET_ABSENT in record.first_seen
    if (missed or isinstance(world.bucket, Absent)) and record.bucket.observed:
        text = "TPU: not requested, since the bucket that held the job's data is gone"
        return Decision(wait=Wait(text), rule=LoopRule.BUCKET_GONE)
    # Only before the first VM: later the job continues without it.
    if names.takes_vm(spec) and isinstance(world.vm, Absent) and not record.vm.accepted:
        text = f"TPU: not requested before the VM {names.vm_name(spec)} is adopted"
        return Decision(wait=Wait(text), rule=LoopRule.TPU_CREATE)
    vm = _without_vm(spec, record)
    if vm is not None:
        text = f"TPU: not requested without the VM, which was refused ({vm.text})"
        return Decision(wait=Wait(text), rule=LoopRule.REFUSED_FINAL)
    # A TPU that has already won would be doubled by a new one.
    if open_race(record) and isinstance(world.claim, Unknown):
        text = f"TPU: it is not known who has won the race ({world.claim.message})"
        return Decision(wait=Wait(text), rule=LoopRule.UNKNOWN)
    return None


def _request(spec: Spec, world: World, record: Record, verdict: NodeVerdict) -> Decision:
    """Return the request of the next TPU with its type and zone, or what holds it back."""
    blocked = _request_blocked(spec, world, record)
    if blocked is not None:
        return blocked
    # Zones that the file no longer names are not used; a new name keeps the two creates apart.
    moved = record.node.zone not in spec.tpu.zones
    fresh = moved or verdict.action is NodeAction.REPLACE or record.node.incarnation == 0
    kind = next_type(spec, record, world.observed_at) if fresh else current_type(spec, record)
    last, record = record, replace(record, node=replace(record.node, type=kind))
    if fresh and races(spec):
        return new_round(spec, world, record, verdict.message)
    # The same name for a create whose answer was lost: at worst it is refused as taken, never created twice.
    full = full_zones(spec, world, record)
    zone = next_zone(spec, record, world.observed_at, world.prices, full) if fresh else record.node.zone
    if quota_held(world, record, zone):
        return waits_for_quota(zone)
    # Our own TPU held the quota: no TPU has had the number, and a name is one TPU at most within its zone.
    free = fresh and refused_beside(last, zone, kind)
    incarnation = next_incarnation(record) if fresh and not free else record.node.incarnation
    name = names.node_name(spec, incarnation)
    race = 0 if fresh else race_to_win(record, incarnation)
    message = verdict.message + (
        zone_text(spec, record, world.observed_at, zone, world.prices) if fresh else ""
    )
    change = Change(
        Kind.NODE, Verb.CREATE, name, message, zone, incarnation, race, kind, substitute=kind != spec.tpu.type
    )
    return held_back(spec, record, world, Kind.NODE, zone) or Decision((change,), rule=LoopRule.TPU_CREATE)


def delete_node(node: Node, message: str) -> Change:
    """Return the deletion of *node* with its reason."""
    return Change(Kind.NODE, Verb.DELETE, node.name, message, node.zone, node.incarnation)


def deleting(node: Node, world: World, record: Record) -> bool:
    """
    Return whether the node's deletion is under way and not overdue.

    Only the node's state proves it: Google drops the deletion of a node that is being created, and its
    operation may still end successfully (docs/facts.md 1.3).
    """
    asked = record.first_seen.get(of_name(node.name, Condition.DELETION_REQUESTED), world.observed_at)
    if node.state is NodeState.DELETING:
        return world.observed_at - asked < DELETE_AGAIN
    pending = any(o.name == node.name and o.verb is Verb.DELETE for o in record.operations)
    return pending and world.observed_at - asked < DELETE_SETTLES
