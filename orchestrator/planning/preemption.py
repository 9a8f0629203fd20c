"""What workers say about the end of their machines, before the cloud does."""

from orchestrator.contract.preemption_notice import AT_REST, REPORT_COUNTS
from orchestrator.domain.observation import Node, Phase, World
from orchestrator.domain.spec import Spec

FRESH = 60.0
"""Seconds for which a notice is followed closely; it announces the end for 30 s later."""
_AT_REST = frozenset(map(Phase, AT_REST))


def noticed(world: World, node: Node) -> bool:
    """Say whether a worker of *node* has just had its notice: what becomes of it is known within seconds."""
    return any(b.notice and world.observed_at - b.updated < FRESH for b in world.beats_of(node.incarnation))


def being_taken(world: World, node: Node) -> bool:
    """Say whether a worker of *node* has just said that it is preempted; a notice alone may be of a reboot."""
    return any(
        b.preempted and world.observed_at - b.updated < FRESH for b in world.beats_of(node.incarnation)
    )


def stopped_for_good(spec: Spec, world: World, node: Node) -> bool:
    """
    Say whether nothing trains on *node* any more, nor will again: a replacement then trains alone.

    Of a job on the VM the reports tell nothing about the TPU.
    """
    return spec.job.run_on == "tpu" and workers_stopped(world, node)


def workers_stopped(world: World, node: Node) -> bool:
    """Say whether every worker of *node* is being preempted, has stopped its job and committed what it had."""
    at_rest = {b.worker for b in world.beats_of(node.incarnation) if b.preempted and b.phase in _AT_REST}
    # All of them: a gang whose last worker still saves must not lose its machine.
    return bool(node.workers) and at_rest >= {w.index for w in node.workers}


def still_saving(world: World, node: Node) -> bool:
    """Say whether a worker of *node* that is being preempted has just said that it is not at rest yet."""
    return any(
        b.preempted and b.phase not in _AT_REST and world.observed_at - b.updated < REPORT_COUNTS
        for b in world.beats_of(node.incarnation)
    )
