"""Decide about the TPU node: keep, wait, replace, and delete all but the newest incarnation."""

from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.domain import names
from orchestrator.domain.first_seen import BUCKET_ABSENT, Sign, of_name, of_node
from orchestrator.domain.observation import Absent, Node, NodeState, Unknown, World
from orchestrator.domain.plan import Change, Kind, LoopRule, Step, Verb
from orchestrator.domain.record import (
    CONFIRMED_AFTER,
    TERMINAL,
    Record,
    Refusal,
    current_node,
    lasted,
    next_incarnation,
    race_to_win,
    succeeded,
    surely_absent,
    unrecorded_nodes,
)
from orchestrator.domain.scopes import narrow
from orchestrator.domain.spec import Spec
from orchestrator.domain.tpu_shape import unwanted
from orchestrator.errors import Retry
from orchestrator.planning.deadline import Mode
from orchestrator.planning.job import NARROW, Unreachable, job_digest, out_of_reach, reports
from orchestrator.planning.never_reported import (
    LateReport,
    as_never_reported,
    late_to_report,
    nothing_reported,
    often_silent,
    with_silent_tpu,
)
from orchestrator.planning.next_zone import (
    full_zones,
    held_back,
    next_zone,
    quota_held,
    waits_for_quota,
    why_there,
)
from orchestrator.planning.on_demand import as_on_demand, of_mode, to_leave, wants_flex_start, wants_on_demand
from orchestrator.planning.preemption import being_taken, noticed, stopped_for_good
from orchestrator.planning.queued_tpu import judge_in_queue
from orchestrator.planning.race import (
    beside,
    candidates,
    joining,
    may_overlap,
    may_win,
    new_round,
    open_race,
    races,
    undecided,
)
from orchestrator.planning.tpu_types import current_type, next_type

CREATE_DEADLINE = 1800.0
"""Seconds that a node may stay CREATING; other tools allow 15 to 60 minutes (docs/facts.md 1.3)."""
REPAIR_DEADLINE = 300.0
"""Seconds that a node may stay in a passing state (REPAIRING, RESTARTING, HIDING ...) before it is replaced."""
SICK_DEADLINE = 480.0
"""Seconds that a node which has reported before may be unhealthy and silent before it is replaced."""
DELETE_AGAIN = 600.0
"""Seconds after which a node that is still DELETING is deleted once more."""
DELETE_SETTLES = 30.0
"""Seconds after which a node that shows no sign of its deletion is deleted once more."""
NOTICE_POLL = 2.0
"""Seconds between two passes after a preemption notice."""
NEXT_COMES = "TPU: the next one is being made, and takes over when it is READY"


class NodeVerdict(Enum):
    """
    Name what happens to the current node.

    CREATE repeats the request under the same name while nothing exists under it; REPLACE requests a TPU under
    a new name, whether or not the node still exists; SUCCEED does the same and keeps this one until the next
    is READY.
    """

    KEEP = "keep"
    WAIT = "wait"
    CREATE = "create"
    REPLACE = "replace"
    SUCCEED = "succeed"


@dataclass(frozen=True)
class NodeJudgement:
    """Hold a verdict on the current node, the rule that has reached it, and its reason in words."""

    verdict: NodeVerdict
    rule: LoopRule
    why: str = ""

    @property
    def silent(self) -> bool:
        """Say whether the TPU is judged because its machines do not report."""
        return self.rule in {
            LoopRule.TPU_UNHEALTHY,
            LoopRule.TPU_UNREACHABLE,
            LoopRule.TPU_NEVER_REPORTED,
        }


def decide_node(spec: Spec, world: World, record: Record) -> Step:
    """
    Return the changes that lead to exactly one usable TPU.

    In this order: losers and leftovers are deleted; the newest TPU is kept, awaited or deleted; then its
    replacement is requested.
    """
    if isinstance(world.nodes, Unknown):
        return Step(waiting=f"TPU: not known ({world.nodes.why})", rule=LoopRule.UNKNOWN)
    current = current_node(world, record)
    # A stale list may show a TPU of an earlier life under a larger number, so it counts from the second pass on.
    unknown = unrecorded_nodes(world, record)
    superseded = [
        n
        for n in world.known_nodes
        if n is not current and n not in unknown and (not may_win(n, record) or _overdue(n, world, record))
    ]
    # Losers and leftovers are billed: delete them even while nothing else is decided.
    old = [n for n in superseded if not deleting(n, world, record)]
    removals = [delete_node(n, _why_old(n, record)) for n in old]
    judgement = _in_time(spec, world, record, judge_node(spec, current, world, record))
    racing = undecided(record)
    rule = LoopRule.TPU_RACE if racing and candidates(record) else judgement.rule
    if judgement.verdict is NodeVerdict.SUCCEED and not unknown:
        removals += _succeed(spec, world, record, judgement.why)
    if judgement.verdict in {NodeVerdict.KEEP, NodeVerdict.SUCCEED}:
        coming = succeeded(record) and bool(candidates(record))
        closely = racing or coming or (current is not None and noticed(world, current))
        waiting = NEXT_COMES if coming else "TPU: it has yet to win its race" if racing else ""
        rule = LoopRule.TPU_NEXT if coming else rule
        return Step(tuple(removals), waiting, wake_in=NOTICE_POLL if closely else None, rule=rule)
    if judgement.verdict is NodeVerdict.WAIT:
        age = world.observed_at - record.node.requested_at
        changes = (*removals, *joining(spec, world, record))
        return Step(changes, f"TPU: {judgement.why}", wake_in=max(5.0, age / 20), rule=rule)
    if unknown:
        text = f"TPU: {unknown[0].name} is not in the record; looking once more before it counts as ours"
        return Step(tuple(removals), text, wake_in=5.0, rule=rule)
    # A TPU under deletion is not deleted again, and the next one is requested under a new name.
    going = current is None or current.state is NodeState.DELETING
    if judgement.verdict is NodeVerdict.REPLACE and current is not None and not going:
        gone = delete_node(current, judgement.why)
        gone = as_never_reported(gone, world) if judgement.silent else gone
        removals.append(gone)
        # Recorded before the next request is planned, which must not go to the zone of a silent TPU.
        record = with_silent_tpu(record, gone, world.observed_at)
    if succeeded(record) and candidates(record):
        return Step(tuple(removals), NEXT_COMES, wake_in=NOTICE_POLL, rule=LoopRule.TPU_NEXT)
    creation = _create(spec, world, record, judgement)
    changes = (*removals, *creation.changes)
    # If nothing can be done now, the rule that holds the request back has decided.
    return replace(creation, changes=changes, rule=rule if changes else creation.rule)


def _overdue(node: Node, world: World, record: Record) -> bool:
    """Say whether no successor has won within CREATE_DEADLINE, so that others may be requested."""
    asked = {one.incarnation: one.requested_at for one in candidates(record)} if succeeded(record) else {}
    return world.observed_at - asked.get(node.incarnation or 0, world.observed_at) >= CREATE_DEADLINE


def _why_old(node: Node, record: Record) -> str:
    if 0 < record.race.round == names.round_of(node.labels) and record.race.claimed:
        return f"TPU #{record.node.incarnation} has won the race"
    if 0 < record.race.round == names.round_of(node.labels) and succeeded(record):
        return f"TPU #{node.incarnation} has not taken over in {CREATE_DEADLINE / 60:.0f} min"
    return f"TPU #{node.incarnation} is not the newest"


def judge_node(spec: Spec, node: Node | None, world: World, record: Record) -> NodeJudgement:
    """Return the verdict on the current node, from its state and the time it has been in it."""
    if node is None:
        return _judge_missing(world, record)
    state = node.state
    # The queue comes first: its node may still look healthy after the queued resource has failed.
    place = judge_in_queue(node, world, record)
    if state in TERMINAL or state is NodeState.DELETING or (place is not None and place.lost):
        lost = place is not None and place.lost
        # A request that leaves the queue in time has no machine to lose.
        rule = LoopRule.TPU_QUEUED if lost and state is NodeState.CREATING else LoopRule.TPU_LOST
        why = place.why if place is not None and lost else f"{node.name} is {state.name}"
        return NodeJudgement(NodeVerdict.REPLACE, rule, why)
    # Reports of the machines precede the API's state, which lags behind a preemption notice.
    if stopped_for_good(spec, world, node):
        # What that means for the job's work is told by the event of the preemption (`planning/news.py`).
        return NodeJudgement(NodeVerdict.REPLACE, LoopRule.TPU_PREEMPTED, f"{node.name} is being preempted")
    if unwanted(record):
        why = f"tpuctl.yaml wants another TPU: {record.node.shape}"
        return NodeJudgement(NodeVerdict.REPLACE, LoopRule.TPU_UNWANTED, why)
    # Compare with the last `up`: editing the file alone must not cost a running job its TPU.
    if narrow(spec, "tpu", node.scopes) and record.job.settings == job_digest(spec):
        return NodeJudgement(NodeVerdict.REPLACE, LoopRule.TPU_UNWANTED, NARROW)
    # Waiting in the queue is no fault, however long it takes.
    if place is not None:
        return NodeJudgement(NodeVerdict.WAIT, LoopRule.TPU_QUEUED, place.why)
    if state is NodeState.STOPPED:
        why = "it is STOPPED; a spot node cannot be started again"
        return NodeJudgement(NodeVerdict.REPLACE, LoopRule.TPU_LOST, why)
    if reports(spec, world, node) or (state is NodeState.READY and node.healthy):
        # Slices have trained while the API still said CREATING, and through maintenance (docs/facts.md 1.3).
        return _judge_ready(spec, node, world, record)
    if state is NodeState.READY:
        return _judge_sick(spec, node, world, record)
    return _judge_passing(state, world, record)


def _judge_passing(state: NodeState, world: World, record: Record) -> NodeJudgement:
    """Judge a node that is not READY and whose machines do not report."""
    key = of_node(record.node.incarnation, state)
    if state is NodeState.CREATING:
        late = lasted(record, world, key, CREATE_DEADLINE)
        why = f"still CREATING after {CREATE_DEADLINE / 60:.0f} min" if late else "CREATING"
        return NodeJudgement(NodeVerdict.REPLACE if late else NodeVerdict.WAIT, LoopRule.TPU_CREATING, why)
    late = lasted(record, world, key, REPAIR_DEADLINE)
    why = f"{state.name} for more than {REPAIR_DEADLINE / 60:.0f} min" if late else state.name
    return NodeJudgement(NodeVerdict.REPLACE if late else NodeVerdict.WAIT, LoopRule.TPU_PASSING, why)


def _judge_sick(spec: Spec, node: Node, world: World, record: Record) -> NodeJudgement:
    """
    Judge a READY node that the API calls unhealthy and whose machines do not report.

    One that has never reported was probably broken from the start and is replaced at once, unless that has
    happened often in its zone. With health TIMEOUT it may still be warming up; maintenance ends by itself.
    """
    why = f"unhealthy: {node.health}"
    # Heartbeats could not be read: Unknown is not silent.
    if isinstance(world.heartbeats, Unknown):
        return NodeJudgement(NodeVerdict.WAIT, LoopRule.TPU_UNHEALTHY, why)
    lost = out_of_reach(spec, world, record, node) or late_to_report(spec, world, record)
    if lost is not None:
        return NodeJudgement(NodeVerdict.REPLACE, _rule_of(lost), f"{why}, and {lost.text}")
    born = spec.job.run_on == "tpu" and nothing_reported(world)
    if born and (node.timed_out or often_silent(spec, record, node.zone)):
        return NodeJudgement(NodeVerdict.WAIT, LoopRule.TPU_UNHEALTHY, why)
    patience = CONFIRMED_AFTER if born else SICK_DEADLINE
    late = lasted(record, world, of_node(record.node.incarnation, Sign.UNHEALTHY), patience)
    return NodeJudgement(NodeVerdict.REPLACE if late else NodeVerdict.WAIT, LoopRule.TPU_UNHEALTHY, why)


def _rule_of(lost: Unreachable | LateReport) -> LoopRule:
    return LoopRule.TPU_UNREACHABLE if isinstance(lost, Unreachable) else LoopRule.TPU_NEVER_REPORTED


def _judge_ready(spec: Spec, node: Node, world: World, record: Record) -> NodeJudgement:
    lost = out_of_reach(spec, world, record, node) or late_to_report(spec, world, record)
    if lost is not None:
        return NodeJudgement(NodeVerdict.REPLACE, _rule_of(lost), f"READY, but {lost.text}")
    # Its end is certain, so the next one is created while this one saves.
    if may_overlap(spec) and being_taken(world, node) and not undecided(record):
        return NodeJudgement(NodeVerdict.SUCCEED, LoopRule.TPU_NEXT, "it is being preempted, and saves")
    well = node.state is NodeState.READY and node.healthy
    return NodeJudgement(NodeVerdict.KEEP, LoopRule.TPU_READY if well else LoopRule.TPU_REPORTS)


def _in_time(spec: Spec, world: World, record: Record, judgement: NodeJudgement) -> NodeJudgement:
    """Return the judgement; SUCCEED or REPLACE if a TPU that could stay is left for the deadline or for money."""
    # Not during a race, because it is not known yet which TPU is ours.
    stays = judgement.verdict in {NodeVerdict.KEEP, NodeVerdict.WAIT} and not undecided(record)
    choice = to_leave(spec, world, record) if stays else None
    if choice is None:
        return judgement
    # Time on demand is the most expensive, so it is used until spot is READY.
    works = judgement.verdict is NodeVerdict.KEEP and choice.mode is Mode.SPOT and may_overlap(spec)
    verdict = NodeVerdict.SUCCEED if works else NodeVerdict.REPLACE
    return NodeJudgement(verdict, LoopRule.TPU_NEXT, f"{choice.why} (deadline)")


def _judge_missing(world: World, record: Record) -> NodeJudgement:
    number = record.node.incarnation
    if number == 0:
        return NodeJudgement(NodeVerdict.CREATE, LoopRule.TPU_MAKE, "there is none yet")
    refused = [r for r in record.refusals if r.kind is Kind.NODE]
    if record.race.round:
        refused = [r for r in refused if r.zone == record.node.zone]
    if refused and not record.node.accepted:
        # A create whose answer was lost may have made the node: repeated under the same name, it stays one node.
        unsure = record.node.requested_at > 0 and refused[-1].retry in {Retry.TRANSIENT, Retry.UNKNOWN}
        why = f"TPU #{number} was refused ({refused[-1].retry.value})"
        if refused[-1].full:
            why = f"TPU #{number} had to wait for the quota of another TPU of this deployment"
        return NodeJudgement(NodeVerdict.CREATE if unsure else NodeVerdict.REPLACE, LoopRule.TPU_MAKE, why)
    if not record.node.accepted and record.node.requested_at == 0 and record.node.zone:
        return NodeJudgement(NodeVerdict.REPLACE, LoopRule.TPU_MAKE, "there is none now")
    if not record.node.accepted:
        return NodeJudgement(NodeVerdict.CREATE, LoopRule.TPU_MAKE, "there is none yet")
    # Lists may lag behind the create: while its operation runs, an absence proves nothing.
    if any((o.kind, o.verb, o.incarnation) == (Kind.NODE, Verb.CREATE, number) for o in record.operations):
        late = world.observed_at - record.node.requested_at >= CREATE_DEADLINE
        verdict, why = (
            NodeVerdict.REPLACE if late else NodeVerdict.WAIT,
            "create accepted, nothing to see yet",
        )
        return NodeJudgement(verdict, LoopRule.TPU_CREATING, why)
    if surely_absent(record, world, number):
        return NodeJudgement(NodeVerdict.REPLACE, LoopRule.TPU_MAKE, "it has vanished")
    why = "not listed; checking once more before it counts as gone"
    return NodeJudgement(NodeVerdict.WAIT, LoopRule.ABSENT_ONCE, why)


def _create(spec: Spec, world: World, record: Record, judgement: NodeJudgement) -> Step:
    """Request the next TPU, spot or on demand; repeat a request without an answer as it was."""
    again = judgement.verdict is NodeVerdict.CREATE and record.node.incarnation > 0
    was = record.node.incarnation in record.deadline.on_demand
    on_demand = was if again else wants_on_demand(spec, world, record)
    asked = _asked(spec, world, of_mode(record, on_demand=on_demand), judgement)
    flex = record.node.incarnation in record.deadline.flex_start if again else wants_flex_start(spec, record)
    return as_on_demand(asked, flex=flex) if on_demand else asked


def _succeed(spec: Spec, world: World, record: Record, why: str) -> tuple[Change, ...]:
    """Request a successor of a working TPU, not in a zone that is preempting it."""
    node = current_node(world, record)
    going = node is not None and being_taken(world, node)
    zones = tuple(zone for zone in spec.tpu.zones if not going or zone != record.node.zone)
    # On demand for the deadline is requested when spot is gone; beside a working TPU only spot is requested.
    if not zones or (going and wants_on_demand(spec, world, record)):
        return ()
    return beside(
        replace(spec, tpu=replace(spec.tpu, zones=zones)), world, of_mode(record, on_demand=False), why
    )


def _without_vm(spec: Spec, record: Record) -> Refusal | None:
    """Return why the first VM is refused for good: without it a TPU would be billed in vain."""
    if spec.vm == "none" or record.vm.accepted:
        return None
    final = (r for r in reversed(record.refusals) if r.retry in {Retry.PERMANENT, Retry.QUOTA})
    return next((r for r in final if r.kind is Kind.VM), None)


def _asked(spec: Spec, world: World, record: Record, judgement: NodeJudgement) -> Step:
    # Unknown after Absent still counts as absent here: without a bucket there is no lease.
    missed = isinstance(world.bucket, Unknown) and BUCKET_ABSENT in record.first_seen
    if (missed or isinstance(world.bucket, Absent)) and record.bucket.observed:
        text = "TPU: not requested, since the bucket that held the job's data is gone"
        return Step(waiting=text, rule=LoopRule.BUCKET_GONE)
    # Only before the first VM: later the job continues without it.
    if names.takes_vm(spec) and isinstance(world.vm, Absent) and not record.vm.accepted:
        text = f"TPU: not requested before the VM {names.vm_name(spec)} is adopted"
        return Step(waiting=text, rule=LoopRule.TPU_MAKE)
    vm = _without_vm(spec, record)
    if vm is not None:
        text = f"TPU: not requested without the VM, which was refused ({vm.text})"
        return Step(waiting=text, rule=LoopRule.REFUSED_FINAL)
    # A TPU that has already won would be doubled by a new one.
    if open_race(record) and isinstance(world.claim, Unknown):
        text = f"TPU: it is not known who has won the race ({world.claim.why})"
        return Step(waiting=text, rule=LoopRule.UNKNOWN)
    # Zones that the file no longer names are not used; a new name keeps the two creates apart.
    moved = record.node.zone not in spec.tpu.zones
    fresh = moved or judgement.verdict is NodeVerdict.REPLACE or record.node.incarnation == 0
    kind = next_type(spec, record, world.observed_at) if fresh else current_type(spec, record)
    record = replace(record, node=replace(record.node, type=kind))
    if fresh and races(spec):
        return new_round(spec, world, record, judgement.why)
    # The same name for a create whose answer was lost: at worst it is refused as taken, never created twice.
    incarnation = next_incarnation(record) if fresh else record.node.incarnation
    full = full_zones(spec, world, record)
    zone = next_zone(spec, record, world.observed_at, world.prices, full) if fresh else record.node.zone
    if quota_held(world, record, zone):
        return waits_for_quota(zone)
    name = names.node_name(spec, incarnation)
    race = 0 if fresh else race_to_win(record, incarnation)
    why = judgement.why + (why_there(spec, record, world.observed_at, zone, world.prices) if fresh else "")
    change = Change(
        Kind.NODE, Verb.CREATE, name, why, zone, incarnation, race, kind, substitute=kind != spec.tpu.type
    )
    return held_back(spec, record, world, Kind.NODE, zone) or Step((change,), rule=LoopRule.TPU_MAKE)


def delete_node(node: Node, why: str) -> Change:
    """Return the deletion of *node* with its reason."""
    return Change(Kind.NODE, Verb.DELETE, node.name, why, node.zone, node.incarnation)


def deleting(node: Node, world: World, record: Record) -> bool:
    """
    Say whether the node's deletion is under way and not overdue.

    Only the node's state proves it: Google drops the deletion of a node that is being created, and its
    operation may still end successfully (docs/facts.md 1.3).
    """
    asked = record.first_seen.get(of_name(node.name, Sign.DELETION_ASKED), world.observed_at)
    if node.state is NodeState.DELETING:
        return world.observed_at - asked < DELETE_AGAIN
    pending = any(o.name == node.name and o.verb is Verb.DELETE for o in record.operations)
    return pending and world.observed_at - asked < DELETE_SETTLES
