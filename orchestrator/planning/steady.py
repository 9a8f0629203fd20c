"""Compute how long a deployment may be left alone, because only a change in the list of TPUs changes its plan."""

from collections.abc import Callable

from orchestrator.contract.phase import Phase
from orchestrator.domain.first_seen import VM_ABSENT, Condition
from orchestrator.domain.observation import Node, NodeState, Present, VmState, World
from orchestrator.domain.plan import Plan
from orchestrator.domain.record import Record, current_node
from orchestrator.domain.spec import Spec
from orchestrator.planning.job import SILENCE, expected_workers, heartbeat_interval

MAX_STEADY = 45.0
"""Seconds at most: a `push` waits 90 s for the lease, and a published status is current for 75 s."""
STEADY_STATES = frozenset(
    {
        NodeState.READY,
        Condition.FROM_ZERO,
        Condition.MADE,
        Condition.LAST_CREATING,
        Condition.HAS_RUN,
        Condition.RUNNING,
    }
)
"""States that belong to a TPU or VM at work; any other recorded state is a doubt whose age matters."""


def steady_until(
    spec: Spec, world: World, record: Record, plan: Plan, usd_so_far: Callable[[float], float]
) -> float:
    """
    Return the time before which this plan stays right, unless the list of TPUs changes.

    It is the time of the observation if anything else may change the plan; then the next pass observes
    everything. *usd_so_far* returns the estimated cost in USD up to a time.
    """
    now, node = world.observed_at, current_node(world, record)
    if node is None or not (_nothing_to_do(spec, plan, record) and _works(spec, world, record, node)):
        return now
    # Each of these changes the plan at its time, whatever an observation shows.
    until = min(
        now + MAX_STEADY,
        min(heartbeat.updated for heartbeat in world.known_heartbeats) + SILENCE * heartbeat_interval(spec),
        record.started_at + spec.watch.ttl,
    )
    budget = spec.watch.budget_usd
    # Spending only grows: if it is below the budget at the end, it is below it all the time.
    return now if until <= now or (budget is not None and usd_so_far(until) >= budget) else until


def _nothing_to_do(spec: Spec, plan: Plan, record: Record) -> bool:
    """Return whether nothing is requested, awaited or in doubt."""
    # The absence of a VM that the file does not ask for is no doubt.
    unwanted = VM_ABSENT if spec.vm == "none" else None
    doubts = {key.state for key in record.first_seen if key != unwanted} - STEADY_STATES
    under_way = record.operations or record.refusals or record.race.candidates
    return plan == Plan() and not doubts and not under_way and record.ssh.failed_since is None


def _works(spec: Spec, world: World, record: Record, node: Node) -> bool:
    """Return whether every resource that should exist works, and no other one exists."""
    only_node = world.known_nodes == (node,) and node.zone == record.node.zone
    sound = node.state is NodeState.READY and node.healthy
    # Queue and deadline change the plan by time, and a preempted TPU may end at any moment.
    queued = record.node.queued or spec.tpu.request != "node"
    plain = node.maintenance is None and not queued and spec.watch.deadline is None
    vm = spec.vm == "none" or (isinstance(world.vm, Present) and world.vm.value.state is VmState.RUNNING)
    return (
        only_node
        and sound
        and plain
        and vm
        and isinstance(world.bucket, Present)
        and _trains(spec, world, node)
    )


def _trains(spec: Spec, world: World, node: Node) -> bool:
    """Return whether every worker reports that its job runs, and none that its machine is being preempted."""
    heartbeats = world.known_heartbeats
    running = [
        heartbeat.worker
        for heartbeat in heartbeats
        if heartbeat.phase is Phase.RUN
        and heartbeat.incarnation == node.incarnation
        and not heartbeat.notice
        and not heartbeat.preempted
    ]
    return len(running) == len(heartbeats) and sorted(running) == list(range(expected_workers(spec, node)))
