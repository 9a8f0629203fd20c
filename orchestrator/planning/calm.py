"""When a deployment may be left alone: until then only a change in the list of TPUs can make another plan."""

from collections.abc import Callable

from orchestrator.domain.first_seen import VM_ABSENT, Sign
from orchestrator.domain.observation import Node, NodeState, Phase, Present, VmState, World
from orchestrator.domain.plan import Plan
from orchestrator.domain.record import Record, current_node
from orchestrator.domain.spec import Spec
from orchestrator.planning.job import SILENCE, expected_workers, heartbeat_interval

LONGEST = 45.0
"""Seconds at most: a `push` waits 90 s for its turn, and a published status counts for 75 s."""
CALM_SIGNS = frozenset({NodeState.READY, Sign.MADE, Sign.LAST_CREATING, Sign.HAS_RUN})
"""What is remembered of a TPU, or VM, that works; any other sign is a doubt that grows with time."""


def calm_until(
    spec: Spec, world: World, record: Record, plan: Plan, spent: Callable[[float], float]
) -> float:
    """
    Return the time before which this plan stays right, unless the list of TPUs changes.

    It is the time of this look when anything else may change the plan: then look at everything at the next
    poll. *spent* estimates the cost up to a time in USD.
    """
    now, node = world.observed_at, current_node(world, record)
    if node is None or not (_nothing_to_do(spec, plan, record) and _works(spec, world, record, node)):
        return now
    # Each of these makes another plan by itself, without any change in what a look shows.
    until = min(
        now + LONGEST,
        min(beat.updated for beat in world.known_beats) + SILENCE * heartbeat_interval(spec),
        record.started_at + spec.watch.ttl,
    )
    budget = spec.watch.budget_usd
    # What is spent only grows: less than the budget at the end is less all the time.
    return now if until <= now or (budget is not None and spent(until) >= budget) else until


def _nothing_to_do(spec: Spec, plan: Plan, record: Record) -> bool:
    """Say whether nothing is asked for, waited for or doubted."""
    # A VM that nobody wants is absent for good.
    unwanted = VM_ABSENT if spec.vm == "none" else None
    doubts = {key.state for key in record.first_seen if key != unwanted} - CALM_SIGNS
    under_way = record.operations or record.refusals or record.race.rivals
    return plan == Plan() and not doubts and not under_way and record.ssh.failed_since is None


def _works(spec: Spec, world: World, record: Record, node: Node) -> bool:
    """Say whether all that there should be works, and there is nothing else."""
    only_node = world.known_nodes == (node,) and node.zone == record.node.zone
    sound = node.state is NodeState.READY and node.healthy
    # The queue and the deadline have times of their own, and a notice may end it at any moment.
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
    """Say whether every worker reports that its job runs, and none that its machine is about to go."""
    beats = world.known_beats
    running = [
        beat.worker
        for beat in beats
        if beat.phase is Phase.RUN
        and beat.incarnation == node.incarnation
        and not beat.notice
        and not beat.preempted
    ]
    return len(running) == len(beats) and sorted(running) == list(range(expected_workers(spec, node)))
