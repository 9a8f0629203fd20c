"""
Decide what one pass changes: (spec, world, history) -> Plan, one short function for each resource.

Pure. Unknown never leads to a change; an absence counts after it was seen twice, 30 s apart.
"""

from dataclasses import dataclass, replace
from enum import Enum

from orchestrator.core import names
from orchestrator.core.history import TERMINAL, History, current_node, finished
from orchestrator.core.job import decide_job
from orchestrator.core.plan import Change, Kind, Outcome, Plan, Verb
from orchestrator.core.recovery import SECOND_WITNESS, create_gate, hopeless, next_zone
from orchestrator.core.spec import Spec
from orchestrator.core.step import Step
from orchestrator.core.world import Absent, Node, NodeState, Phase, Present, Unknown, VmState, World

CREATE_DEADLINE = 1800.0
"""Seconds a node may stay CREATING before it is given up (peers allow 10 to 60 minutes)."""
REPAIR_DEADLINE = 300.0
"""Seconds a node may stay in a passing state (REPAIRING, RESTARTING, HIDING ...) before it is replaced."""
DELETE_AGAIN = 600.0
"""Seconds after which a node that is still DELETING is deleted once more."""

PASSING = frozenset(
    {
        NodeState.RESTARTING,
        NodeState.REIMAGING,
        NodeState.REPAIRING,
        NodeState.STARTING,
        NodeState.STOPPING,
        NodeState.HIDING,
        NodeState.HIDDEN,
        NodeState.UNHIDING,
        NodeState.UNKNOWN,
        NodeState.STATE_UNSPECIFIED,
    }
)


class Verdict(Enum):
    """
    Say what becomes of the current node.
    """

    KEEP = "keep"
    WAIT = "wait"
    CREATE = "create"
    REPLACE = "replace"


@dataclass(frozen=True)
class Judgement:
    """
    Hold a verdict on the current node with its reason.
    """

    verdict: Verdict
    why: str = ""


def decide(spec: Spec, world: World, history: History, spent_usd: float = 0.0) -> Plan:
    """
    Return the plan of this pass.
    """
    outcome, reason = judge_end(spec, world, history, spent_usd)
    if outcome is Outcome.REFUSED:
        return Plan(outcome=outcome, reason=reason)
    if outcome is not None:
        return _wind_down(world, outcome, reason)
    steps = (
        decide_bucket(spec, world, history),
        decide_bundle(world, history),
        decide_vm(spec, world, history),
        decide_node(spec, world, history),
        decide_job(spec, world, history),
    )
    wakes = [s.wake_in for s in steps if s.wake_in is not None]
    return Plan(
        changes=tuple(c for s in steps for c in s.changes),
        waiting=tuple(s.waiting for s in steps if s.waiting),
        wake_in=min(wakes, default=None),
    )


def judge_end(spec: Spec, world: World, history: History, spent_usd: float) -> tuple[Outcome | None, str]:
    """
    Say whether the deployment has come to its end: done, failed or out of budget or time.
    """
    misplaced = _misplaced(spec, world)
    if misplaced:
        return Outcome.REFUSED, misplaced
    if finished(world):
        return Outcome.DONE, "every worker reports that the job is done"
    if isinstance(world.heartbeats, Present):
        failed = [b for b in world.heartbeats.value if b.phase is Phase.FAILED]
        if failed:
            return Outcome.FAILED, f"worker {failed[0].worker}: {failed[0].message or 'the job gave up'}"
    if history.started_at and world.seen_at - history.started_at >= spec.watch.ttl:
        return Outcome.SPENT, f"the time to live of {spec.watch.ttl} is over"
    budget = spec.watch.budget_usd
    if budget is not None and spent_usd >= budget:
        return Outcome.SPENT, f"the budget is used up: {spent_usd:.2f} of {budget:.2f} USD"
    if history.outcome == Outcome.DONE.value:
        return Outcome.DONE, history.reason
    return None, ""


def _misplaced(spec: Spec, world: World) -> str:
    """
    Say why a bucket in another region than the TPU is refused: each checkpoint would be billed as egress.
    """
    region = names.region_of(spec.tpu.zones[0])
    if not isinstance(world.bucket, Present) or world.bucket.value.location == region:
        return ""
    bucket = world.bucket.value
    return f"bucket {bucket.name} lies in {bucket.location}, the TPU in {region}: slow, and billed as egress"


def _wind_down(world: World, outcome: Outcome, reason: str) -> Plan:
    """
    Delete every node and stop the VM at once; data stays in the bucket, the VM's disk stays too.
    """
    changes = []
    if isinstance(world.nodes, Present):
        changes = [_delete(n, f"the job is {outcome.value}") for n in world.nodes.value if not _going(n)]
    vm = world.vm
    if isinstance(vm, Present) and vm.value.state is VmState.RUNNING:
        changes.append(
            Change(Kind.VM, Verb.STOP, vm.value.name, f"the job is {outcome.value}", vm.value.zone)
        )
    unsure = isinstance(world.nodes, Unknown) or isinstance(vm, Unknown)
    going = isinstance(world.nodes, Present) and bool(world.nodes.value)
    waiting = ("the end is not certain yet: the cloud did not answer",) if unsure else ()
    waiting = waiting or (("the TPU is being deleted",) if going else ())
    return Plan(tuple(changes), waiting, outcome, reason)


def decide_bucket(spec: Spec, world: World, history: History) -> Step:
    """
    Create the bucket when it is not there; refuse to replace one that held data.
    """
    bucket = world.bucket
    if isinstance(bucket, Unknown):
        return Step(waiting=f"bucket: not known ({bucket.why})")
    region = names.region_of(spec.tpu.zones[0])
    if isinstance(bucket, Present):
        if history.bucket_ready or spec.bucket.adopt:
            return Step()
        return Step(
            (Change(Kind.BUCKET, Verb.CREATE, bucket.value.name, "its creation may be unfinished", region),)
        )
    if history.bucket_seen:
        return Step(waiting="bucket: it was there and is gone; nothing is created in its place")
    return Step((Change(Kind.BUCKET, Verb.CREATE, "", "there is none yet", region),))


def decide_bundle(world: World, history: History) -> Step:
    """
    Upload code and agent once the bucket is there.
    """
    wanted = f"{history.bundle}:{history.agent}"
    if not isinstance(world.bucket, Present) or not history.bundle or history.uploaded == wanted:
        return Step()
    return Step((Change(Kind.BUNDLE, Verb.CREATE, history.bundle[:12], "the bucket does not have it yet"),))


def decide_vm(spec: Spec, world: World, history: History) -> Step:
    """
    Create the VM, or start it when it was stopped or preempted.
    """
    if spec.vm == "none":
        return Step()
    name, zone = names.vm_name(spec), names.vm_zone(spec)
    vm = world.vm
    if isinstance(vm, Unknown):
        return Step(waiting=f"VM: not known ({vm.why})")
    if any(o.kind == "vm" for o in history.operations):
        return Step(waiting="VM: an operation is running", wake_in=5.0)
    if isinstance(vm, Absent):
        if history.vm_accepted and not _long(history, world, "vm:absent", SECOND_WITNESS):
            return Step(waiting="VM: not in sight; looking once more before it counts as gone")
        gate = create_gate(history, zone) - world.seen_at
        if gate > 0:
            return Step(waiting=f"VM: next try in {gate:.0f} s", wake_in=gate)
        why = "it is gone" if history.vm_accepted else "there is none yet"
        return Step((Change(Kind.VM, Verb.CREATE, name, why, zone),))
    if vm.value.state in {VmState.TERMINATED, VmState.SUSPENDED}:
        why = "it was preempted" if vm.value.spot else "it is stopped"
        return Step((Change(Kind.VM, Verb.START, name, why, zone),))
    if vm.value.state is VmState.RUNNING:
        return Step()
    return Step(waiting=f"VM: {vm.value.state.value}", wake_in=5.0)


def decide_node(spec: Spec, world: World, history: History) -> Step:
    """
    Keep one usable node: replace what is lost, delete what is not the newest incarnation.
    """
    if isinstance(world.nodes, Unknown):
        return Step(waiting=f"TPU: not known ({world.nodes.why})")
    nodes = world.nodes.value if isinstance(world.nodes, Present) else ()
    current = current_node(world, history)
    old = [n for n in nodes if n is not current and not _deleting(n, world, history)]
    removals = [_delete(n, f"incarnation {n.incarnation} is not the newest") for n in old]
    judgement = judge_node(current, world, history)
    if judgement.verdict is Verdict.KEEP:
        return Step(tuple(removals))
    if judgement.verdict is Verdict.WAIT:
        return Step(tuple(removals), f"TPU: {judgement.why}", wake_in=5.0)
    if judgement.verdict is Verdict.REPLACE and current is not None and not _going(current):
        removals.append(_delete(current, judgement.why))
    creation = _create(spec, world, history, judgement)
    return replace(creation, changes=(*removals, *creation.changes))


def judge_node(node: Node | None, world: World, history: History) -> Judgement:
    """
    Say what becomes of the current node, from its state and how long it has been so.
    """
    if node is None:
        return _judge_missing(world, history)
    key = f"node:{history.incarnation}"
    state = node.state
    if state in TERMINAL or state is NodeState.DELETING:
        return Judgement(Verdict.REPLACE, f"it is {state.name}")
    if state is NodeState.STOPPED:
        return Judgement(Verdict.REPLACE, "it is STOPPED; a spot node cannot be started again")
    if state is NodeState.CREATING:
        late = _long(history, world, f"{key}:creating", CREATE_DEADLINE)
        why = f"still CREATING after {CREATE_DEADLINE / 60:.0f} min"
        return Judgement(Verdict.REPLACE, why) if late else Judgement(Verdict.WAIT, "CREATING")
    if state in PASSING:
        late = _long(history, world, f"{key}:{state.name.lower()}", REPAIR_DEADLINE)
        why = f"{state.name} for more than {REPAIR_DEADLINE / 60:.0f} min"
        return Judgement(Verdict.REPLACE, why) if late else Judgement(Verdict.WAIT, state.name)
    if not node.healthy:
        late = _long(history, world, f"{key}:unhealthy", SECOND_WITNESS)
        return Judgement(Verdict.REPLACE if late else Verdict.WAIT, f"unhealthy: {node.health}")
    lost = history.remote_failed_since
    if lost is not None and world.seen_at - lost >= REPAIR_DEADLINE:
        return Judgement(Verdict.REPLACE, "READY, but silent and out of reach by SSH")
    return Judgement(Verdict.KEEP)


def _judge_missing(world: World, history: History) -> Judgement:
    if history.incarnation == 0:
        return Judgement(Verdict.CREATE, "there is none yet")
    if history.refusals and not history.accepted:
        return Judgement(Verdict.REPLACE, f"the last create was refused ({history.refusals[-1].retry.value})")
    if not history.accepted:
        return Judgement(Verdict.CREATE, "its create was never confirmed")
    if any(o.kind == "node" and o.verb == "create" for o in history.operations):
        late = world.seen_at - history.requested_at >= CREATE_DEADLINE
        return Judgement(Verdict.REPLACE if late else Verdict.WAIT, "create accepted, nothing to see yet")
    if _long(history, world, f"node:{history.incarnation}:absent", SECOND_WITNESS):
        return Judgement(Verdict.REPLACE, "it has vanished")
    return Judgement(Verdict.WAIT, "not in sight; looking once more before it counts as gone")


def _create(spec: Spec, world: World, history: History, judgement: Judgement) -> Step:
    if hopeless(history) is not None:
        return Step(waiting=f"TPU: not asked for again ({hopeless(history)})")
    fresh = judgement.verdict is Verdict.REPLACE or history.incarnation == 0
    incarnation = history.incarnation + 1 if fresh else history.incarnation
    zone = next_zone(spec, history) if fresh else history.zone
    gate = create_gate(history, zone) - world.seen_at
    if gate > 0:
        return Step(waiting=f"TPU: next try in {zone} in {gate:.0f} s ({judgement.why})", wake_in=gate)
    name = names.node_name(spec, incarnation)
    return Step((Change(Kind.NODE, Verb.CREATE, name, judgement.why, zone, incarnation),))


def _delete(node: Node, why: str) -> Change:
    return Change(Kind.NODE, Verb.DELETE, node.name, why, node.zone, node.incarnation)


def _going(node: Node) -> bool:
    return node.state is NodeState.DELETING


def _deleting(node: Node, world: World, history: History) -> bool:
    """
    Say whether the node's deletion is under way and not overdue.
    """
    pending = [o for o in history.operations if o.name == node.name and o.verb == "delete"]
    if pending:
        return world.seen_at - pending[-1].started_at < DELETE_AGAIN
    return _going(node) and node.created_at + DELETE_AGAIN > world.seen_at


def _long(history: History, world: World, key: str, seconds: float) -> bool:
    """
    Say whether a doubtful state was seen at least twice, *seconds* apart, without a break.
    """
    since = history.sightings.get(key)
    return since is not None and world.seen_at - since >= seconds
