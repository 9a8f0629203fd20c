"""Judge the newest TPU: whether it is kept, awaited, replaced, or overlapped by the next one."""

from dataclasses import dataclass
from enum import Enum

from orchestrator.domain.first_seen import Condition, of_node
from orchestrator.domain.machines.scopes import narrow
from orchestrator.domain.names import incarnation_of
from orchestrator.domain.observation import Node, NodeState, Unknown, World
from orchestrator.domain.plan import Kind, LoopRule, Verb
from orchestrator.domain.record import (
    CONFIRMED_AFTER,
    TERMINAL,
    Record,
    lasted,
    surely_absent,
)
from orchestrator.domain.spec import Spec
from orchestrator.domain.tpu_shape import unwanted
from orchestrator.errors import Retry
from orchestrator.planning.job import NARROW, Unreachable, is_reporting, out_of_reach
from orchestrator.planning.job_digest import job_digest
from orchestrator.planning.tpu.never_reported import (
    LateHeartbeat,
    late_heartbeat,
    nothing_reported,
    often_silent,
)
from orchestrator.planning.tpu.preemption import being_taken, stopped_for_good
from orchestrator.planning.tpu.queued_tpu import QueuedVerdict, judge_queued
from orchestrator.planning.tpu.race import (
    may_overlap,
    undecided,
)

CREATE_TIMEOUT = 1800.0
"""Seconds that a node may stay CREATING; other tools allow 15 to 60 minutes (docs/facts.md 1.3)."""
REPAIR_TIMEOUT = 300.0
"""Seconds that a node may stay in a transient state (REPAIRING, RESTARTING, HIDING ...) before it is replaced."""
UNHEALTHY_TIMEOUT = 480.0
"""Seconds that a node which has reported before may be unhealthy and silent before it is replaced."""


class NodeAction(Enum):
    """
    What happens to the current node.

    CREATE repeats the request under the same name while nothing exists under it; REPLACE requests a TPU under
    a new name, whether or not the node still exists; OVERLAP does the same and keeps this one until the next
    is READY.
    """

    KEEP = "keep"
    WAIT = "wait"
    CREATE = "create"
    REPLACE = "replace"
    OVERLAP = "overlap"


@dataclass(frozen=True)
class NodeVerdict:
    """
    A verdict on the current node, the rule that has reached it, and its reason in words.

    *deletion_message* is the reason beside the node's own name, which it does not repeat.
    """

    action: NodeAction
    rule: LoopRule
    message: str = ""
    deletion_message: str = ""

    @classmethod
    def of_state(cls, action: NodeAction, rule: LoopRule, node: Node, state: str) -> "NodeVerdict":
        """Return a verdict whose reason is what the node itself is."""
        return cls(action, rule, f"{node.name} is {state}", f"it is {state}")

    @property
    def silent(self) -> bool:
        """Return whether the TPU is judged because its machines do not report."""
        return self.rule in {
            LoopRule.TPU_UNHEALTHY,
            LoopRule.TPU_UNREACHABLE,
            LoopRule.TPU_NEVER_REPORTED,
        }


def judge_node(spec: Spec, node: Node | None, world: World, record: Record) -> NodeVerdict:
    """Return the verdict on the current node, from its state and the time it has been in it."""
    if node is None:
        return _judge_missing(world, record)
    state = node.state
    # The queue comes first: its node may still look healthy after the queued resource has failed.
    place = judge_queued(node, world, record)
    if state in TERMINAL or state is NodeState.DELETING or (place is not None and place.lost):
        return _judge_lost(node, place)
    # Reports of the machines precede the API's state, which lags behind a preemption notice.
    if stopped_for_good(spec, world, node):
        # What that means for the job's work is told by the event of the preemption (`planning/events.py`).
        rule = LoopRule.TPU_PREEMPTING
        return NodeVerdict.of_state(NodeAction.REPLACE, rule, node, "being preempted")
    if unwanted(record):
        message = f"tpuctl.yaml wants another TPU: {record.node.shape}"
        return NodeVerdict(NodeAction.REPLACE, LoopRule.TPU_UNWANTED, message)
    # Compare with the last `up`: editing the file alone must not cost a running job its TPU.
    if narrow(spec, "tpu", node.scopes) and record.job.settings == job_digest(spec):
        return NodeVerdict(NodeAction.REPLACE, LoopRule.TPU_UNWANTED, NARROW)
    # Waiting in the queue is no failure, however long it takes.
    if place is not None:
        return NodeVerdict(NodeAction.WAIT, LoopRule.TPU_QUEUED, place.message)
    if state is NodeState.STOPPED:
        message = "it is STOPPED; a spot node cannot be started again"
        return NodeVerdict(NodeAction.REPLACE, LoopRule.TPU_ENDED, message)
    if is_reporting(spec, world, node) or (state is NodeState.READY and node.healthy):
        # Slices have trained while the API still said CREATING, and through maintenance (docs/facts.md 1.3).
        return _judge_ready(spec, node, world, record)
    if state is NodeState.READY:
        return _judge_unhealthy(spec, node, world, record)
    return _judge_transient(state, world, record)


def _judge_lost(node: Node, queued: QueuedVerdict | None) -> NodeVerdict:
    """Judge a node that has ended, is being deleted, or whose queued resource is lost."""
    if queued is None or not queued.lost:
        return NodeVerdict.of_state(NodeAction.REPLACE, LoopRule.TPU_ENDED, node, node.state.name)
    # A request that leaves the queue in time has no machine to lose.
    rule = LoopRule.TPU_QUEUED if node.state is NodeState.CREATING else LoopRule.TPU_ENDED
    return NodeVerdict(NodeAction.REPLACE, rule, queued.message)


def _judge_transient(state: NodeState, world: World, record: Record) -> NodeVerdict:
    """Judge a node that is not READY and whose machines do not report."""
    key = of_node(record.node.incarnation, state)
    if state is NodeState.CREATING:
        late = lasted(record, world, key, CREATE_TIMEOUT)
        message = f"still CREATING after {CREATE_TIMEOUT / 60:.0f} min" if late else "CREATING"
        return NodeVerdict(NodeAction.REPLACE if late else NodeAction.WAIT, LoopRule.TPU_CREATING, message)
    late = lasted(record, world, key, REPAIR_TIMEOUT)
    message = f"{state.name} for more than {REPAIR_TIMEOUT / 60:.0f} min" if late else state.name
    return NodeVerdict(NodeAction.REPLACE if late else NodeAction.WAIT, LoopRule.TPU_TRANSIENT_STATE, message)


def _judge_unhealthy(spec: Spec, node: Node, world: World, record: Record) -> NodeVerdict:
    """
    Judge a READY node that the API calls unhealthy and whose machines do not report.

    One that has never reported was probably broken from the start and is replaced after CONFIRMED_AFTER, unless
    that has happened often in its zone, or its health is TIMEOUT: it may still be warming up. One that has
    reported gets UNHEALTHY_TIMEOUT, since maintenance ends by itself.
    """
    message = f"unhealthy: {node.health}"
    # Heartbeats could not be read: Unknown is not silent.
    if isinstance(world.heartbeats, Unknown):
        return NodeVerdict(NodeAction.WAIT, LoopRule.TPU_UNHEALTHY, message)
    lost = out_of_reach(spec, world, record, node) or late_heartbeat(spec, world, record)
    if lost is not None:
        return NodeVerdict(NodeAction.REPLACE, _rule_of(lost), f"{message}, and {lost.text}")
    born = spec.job.run_on == "tpu" and nothing_reported(world)
    if born and (node.timed_out or often_silent(spec, record, node.zone)):
        return NodeVerdict(NodeAction.WAIT, LoopRule.TPU_UNHEALTHY, message)
    timeout = CONFIRMED_AFTER if born else UNHEALTHY_TIMEOUT
    late = lasted(record, world, of_node(record.node.incarnation, Condition.UNHEALTHY), timeout)
    return NodeVerdict(NodeAction.REPLACE if late else NodeAction.WAIT, LoopRule.TPU_UNHEALTHY, message)


def _rule_of(lost: Unreachable | LateHeartbeat) -> LoopRule:
    return LoopRule.TPU_UNREACHABLE if isinstance(lost, Unreachable) else LoopRule.TPU_NEVER_REPORTED


def _judge_ready(spec: Spec, node: Node, world: World, record: Record) -> NodeVerdict:
    lost = out_of_reach(spec, world, record, node) or late_heartbeat(spec, world, record)
    if lost is not None:
        return NodeVerdict(NodeAction.REPLACE, _rule_of(lost), f"READY, but {lost.text}")
    # Its end is certain, so the next one is created while this one saves.
    if may_overlap(spec) and being_taken(world, node) and not undecided(record):
        saves = "being preempted and still saves"
        return NodeVerdict.of_state(NodeAction.OVERLAP, LoopRule.TPU_NEXT, node, saves)
    well = node.state is NodeState.READY and node.healthy
    return NodeVerdict(NodeAction.KEEP, LoopRule.TPU_READY if well else LoopRule.TPU_REPORTS)


def _judge_missing(world: World, record: Record) -> NodeVerdict:
    number = record.node.incarnation
    if number == 0:
        return NodeVerdict(NodeAction.CREATE, LoopRule.TPU_CREATE, "there is none yet")
    refused = [r for r in record.refusals if r.kind is Kind.NODE]
    if record.race.round:
        refused = [r for r in refused if r.zone == record.node.zone]
    if refused and not record.node.accepted:
        # A create whose answer was lost may have made the node: repeated under the same name, it stays one node.
        unsure = record.node.requested_at > 0 and refused[-1].retry in {Retry.TRANSIENT, Retry.UNKNOWN}
        message = f"TPU #{number} was refused ({refused[-1].retry.value})"
        if refused[-1].full:
            message = _after_quota(record, refused[-1].zone)
        return NodeVerdict(NodeAction.CREATE if unsure else NodeAction.REPLACE, LoopRule.TPU_CREATE, message)
    if not record.node.accepted and record.node.requested_at == 0 and record.node.zone:
        # After `up` on a job that is done, and after a refusal, no TPU has had the number.
        ran = any(incarnation_of(span.name, {}) == number for span in record.spans)
        message = replaces(number) if ran else "there is none now"
        return NodeVerdict(NodeAction.REPLACE, LoopRule.TPU_CREATE, message)
    if not record.node.accepted:
        # A process that was killed before its create has asked under a number; earlier TPUs have spans.
        message = "there is none now" if _had_one(record) else "there is none yet"
        return NodeVerdict(NodeAction.CREATE, LoopRule.TPU_CREATE, message)
    # Lists may lag behind the create: while its operation runs, an absence proves nothing.
    if any((o.kind, o.verb, o.incarnation) == (Kind.NODE, Verb.CREATE, number) for o in record.operations):
        late = world.observed_at - record.node.requested_at >= CREATE_TIMEOUT
        action, message = (
            NodeAction.REPLACE if late else NodeAction.WAIT,
            "create accepted, nothing to see yet",
        )
        return NodeVerdict(action, LoopRule.TPU_CREATING, message)
    if surely_absent(record, world, number):
        return NodeVerdict(NodeAction.REPLACE, LoopRule.TPU_CREATE, "it has vanished")
    message = "not listed any more; a second look makes sure that it is gone"
    return NodeVerdict(NodeAction.WAIT, LoopRule.ABSENCE_UNCONFIRMED, message)


def _had_one(record: Record) -> bool:
    return any(span.kind is Kind.NODE for span in record.spans)


def _after_quota(record: Record, zone: str) -> str:
    """Return which TPU the next one replaces that a zone's quota has refused: the newest one there before it."""
    spans = (span for span in record.spans if span.kind is Kind.NODE and span.zone == zone)
    numbers = (incarnation_of(span.name, {}) or 0 for span in spans)
    old = max((number for number in numbers if number < record.node.incarnation), default=0)
    return replaces(old) if old else "another TPU of this deployment held the quota"


def replaces(incarnation: int) -> str:
    """Return why a TPU is created in place of another one, the same before and after the other is deleted."""
    return f"it replaces TPU #{incarnation}"
