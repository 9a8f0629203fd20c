"""Interpret what workers report about the end of their machines, earlier than the API shows it."""

from orchestrator.contract.phase import AT_REST
from orchestrator.contract.preemption_notice import REPORT_COUNTS
from orchestrator.domain.observation import Node, World
from orchestrator.domain.spec import Spec

FRESH = 60.0
"""Seconds for which a preemption notice is followed closely; the machine ends 30 s after it."""


def noticed(world: World, node: Node) -> bool:
    """Return whether a worker of *node* has had a preemption notice within FRESH seconds."""
    return any(
        b.notice and world.observed_at - b.updated < FRESH for b in world.heartbeats_of(node.incarnation)
    )


def being_taken(world: World, node: Node) -> bool:
    """Return whether a worker of *node* has recently reported its preemption; a notice may announce a reboot."""
    return any(
        b.preempted and world.observed_at - b.updated < FRESH for b in world.heartbeats_of(node.incarnation)
    )


def stopped_for_good(spec: Spec, world: World, node: Node) -> bool:
    """
    Return whether nothing trains on *node* any more, nor will again, so that a replacement cannot double it.

    For a job on the VM, its reports say nothing about the TPU.
    """
    return spec.job.run_on == "tpu" and workers_stopped(world, node)


def workers_stopped(world: World, node: Node) -> bool:
    """Return whether every worker of *node* is being preempted, has stopped its job and committed its saves."""
    at_rest = {b.worker for b in world.heartbeats_of(node.incarnation) if b.preempted and b.phase in AT_REST}
    # Every worker: a gang must not lose a machine whose worker still saves.
    return bool(node.workers) and at_rest >= {w.index for w in node.workers}


def still_saving(world: World, node: Node) -> bool:
    """Return whether a worker of *node* that is being preempted has recently reported unfinished saving."""
    return any(
        b.preempted and b.phase not in AT_REST and world.observed_at - b.updated < REPORT_COUNTS
        for b in world.heartbeats_of(node.incarnation)
    )
