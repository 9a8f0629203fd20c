"""
Merge node and queued resource of a TPU that is requested through the queue, and judge the result.

A queued resource has the name of its node, so decisions see one TPU: CREATING while it waits, PREEMPTED when
its queued resource is suspended, TERMINATED when that has failed.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from orchestrator.domain.first_seen import Condition, FirstSeen, of_node
from orchestrator.domain.machines.queued_resource import (
    ENDED,
    IN_QUEUE,
    MAX_RUN,
    QueuedResource,
    QueuedState,
)
from orchestrator.domain.observation import Node, NodeState, World
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Record, Refusal, as_absent, lasted
from orchestrator.domain.spec import Spec
from orchestrator.errors import Retry
from orchestrator.planning.tpu.on_demand import refusal_of

PROVISIONING_TIMEOUT = 1800.0
"""Seconds that a queued resource may stay PROVISIONING; one was observed to create and lose machines for ever."""

RUN_SLACK = 600.0
"""Seconds by which a flex-start TPU may end early, because it is seen READY some time after its start."""
CLOCKS = 60.0
"""Seconds by which the clocks of the cloud and of this computer may differ."""


def merged(nodes: Iterable[Node], queued: Iterable[QueuedResource]) -> tuple[Node, ...]:
    """Return each TPU once: nodes with their queued resource, and waiting queued resources as nodes."""
    unmatched = {(node.zone, node.name): node for node in nodes}
    found = []
    for request in queued:
        # Merged by name and zone, so that a queued resource and its node count as one TPU, not two.
        node = unmatched.pop((request.zone, request.nodes[0] if request.nodes else request.name), None)
        found.append(_without_node(request) if node is None else _with_node(node, request))
    return (*found, *unmatched.values())


def _with_node(node: Node, queued: QueuedResource) -> Node:
    # The node's own end is more precise than that of its queued resource, which follows it.
    going = node.state in {NodeState.PREEMPTED, NodeState.TERMINATED}
    if queued.state in ENDED and not going:
        return replace(node, state=_end(queued), queued=queued)
    if queued.state is QueuedState.DELETING:
        return replace(node, state=NodeState.DELETING, queued=queued)
    return replace(node, queued=queued)


def _without_node(queued: QueuedResource) -> Node:
    """
    Return the node that stands for a queued resource without a listed node.

    An ACTIVE one has lost its node, or the list of nodes is older; it counts as a machine because it may be
    billed.
    """
    state, has_machine = NodeState.CREATING, False
    if queued.state in ENDED:
        state = _end(queued)
    elif queued.state is QueuedState.DELETING:
        state = NodeState.DELETING
    elif queued.state is QueuedState.ACTIVE:
        state, has_machine = NodeState.UNKNOWN, True
    return Node(
        queued.name, queued.zone, state, queued.incarnation, labels=queued.labels, spot=queued.spot,
        created_at=queued.created_at, queued=queued, has_machine=has_machine,
    )  # fmt: skip


def _end(queued: QueuedResource) -> NodeState:
    """Return the state of a TPU whose queued resource has ended: PREEMPTED if Google took it away."""
    taken = queued.state is not QueuedState.FAILED and not queued.by_user
    return NodeState.PREEMPTED if taken else NodeState.TERMINATED


def has_failed(node: Node) -> bool:
    """Return whether the queue dropped the request, which is a refusal and no preemption."""
    return node.queued is not None and node.queued.state is QueuedState.FAILED


def end_text(spec: Spec, record: Record, node: Node, now: float) -> str:
    """Return why a TPU has ended, in words; Google ends a flex-start TPU after its time, which is no preemption."""
    flex = spec.tpu.request == "flex-start" or node.incarnation in record.deadline.flex_start
    if not flex or node.state is not NodeState.PREEMPTED:
        return f"is {node.state.name}"
    given = record.first_seen.get(of_node(node.incarnation, NodeState.READY))
    most = spec.tpu.max_run_duration
    seconds = float(most) if most is not None else MAX_RUN
    if given is None:  # No pass ran while the TPU existed, so its run time is unknown.
        return f"was ended by Google; a flex-start TPU runs for {most or '7d'} at most"
    if now - given >= seconds - RUN_SLACK:
        return f"has had its time ({most or '7d'}), after which Google ends a flex-start TPU"
    return f"was ended by Google before its time ({most or '7d'})"


@dataclass(frozen=True)
class QueuedVerdict:
    """Say of a TPU that was requested through the queue whether it is lost, or still waited for."""

    lost: bool
    message: str


def judge_queued(node: Node, world: World, record: Record) -> QueuedVerdict | None:
    """Return whether a queued TPU is lost, and why; None if the state of its node decides."""
    request = node.queued
    if request is None or node.state is NodeState.DELETING:
        return None
    if request.state is QueuedState.FAILED:
        return QueuedVerdict(True, f"the queue dropped the request: {request.message or 'no reason given'}")
    if request.state in ENDED:
        # Only spot is preempted; other capacity ends when its time is over.
        end = "it was preempted" if request.spot else "the service has ended it"
        end = "its node was deleted by a user" if request.by_user else end
        return QueuedVerdict(True, f"{end}, its queued resource is {request.state.name}")
    if request.state in IN_QUEUE:
        return QueuedVerdict(False, waiting_text(request))
    if request.state is not QueuedState.PROVISIONING or node.state is not NodeState.CREATING:
        return None
    late = lasted(record, world, of_node(node.incarnation, Condition.PROVISIONING), PROVISIONING_TIMEOUT)
    if late:
        return QueuedVerdict(True, f"still PROVISIONING after {PROVISIONING_TIMEOUT / 60:.0f} min")
    return QueuedVerdict(False, "the queue is making it")


def doubts(node: Node) -> set[FirstSeen]:
    """Return the doubtful states of a queued resource, besides those of its node."""
    state = node.queued.state if node.queued else None
    signs = {QueuedState.PROVISIONING: Condition.PROVISIONING, QueuedState.FAILED: Condition.QUEUE_FAILED}
    return {of_node(node.incarnation, signs[state])} if state in signs else set()


def update_queue_failures(record: Record, world: World) -> Record:
    """Return the record with each failed queued resource as one refusal."""
    asked = {record.node.incarnation, *(candidate.incarnation for candidate in record.race.candidates)}
    for node in world.known_nodes:
        failed = of_node(node.incarnation, Condition.QUEUE_FAILED)
        # Counted once, although the failed queued resource is listed until it is deleted.
        new = node.incarnation in asked and failed not in record.first_seen
        if node.queued is None or node.queued.state is not QueuedState.FAILED or not new:
            continue
        refusal = _refusal(node.queued, world.observed_at)
        if node.incarnation in record.deadline.flex_start:
            retry = refusal_of(refusal.retry, flex=True)
            refusal = replace(refusal, on_demand=True, retry=retry)
        record = replace(record, refusals=(*record.refusals, refusal))
        if node.incarnation == record.node.incarnation:
            record = as_absent(record, node.incarnation)
    return record


def _refusal(queued: QueuedResource, now: float) -> Refusal:
    """Return the refusal; a request that waited for its whole allowed time has met a stockout."""
    # Two clocks are compared: the deadline is by the service's, the present time by ours.
    if 0 < queued.until <= now + CLOCKS:
        text = f"{queued.name} has left the queue of {queued.zone}: no TPU came free in time"
        return Refusal(now, queued.zone, Retry.CAPACITY, text, Kind.NODE)
    retry = queued.retry or Retry.UNKNOWN
    return Refusal(now, queued.zone, retry, queued.message, hint=queued.hint, code=queued.code)


def state_text(node: Node) -> str:
    """Return the state of a TPU for people: while it is only queued, that of its queued resource."""
    request = node.queued
    if request is None or request.state is QueuedState.ACTIVE or node.state is NodeState.READY:
        return node.state.name
    waiting = f" ({waiting_text(request)})" if request.state in IN_QUEUE else ""
    return request.state.name + waiting


def waiting_text(queued: QueuedResource) -> str:
    """Return since when a request has been queued, and until when it stays there, in words."""
    since = f" since {_clock(queued.created_at)}" if queued.created_at else ""
    return f"in the queue{since}" + (f", until {_clock(queued.until)} at most" if queued.until else "")


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at, timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
