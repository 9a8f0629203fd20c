"""Decide in which state a deployment is: the one value that all commands show."""

from orchestrator.contract.phase import Phase
from orchestrator.domain.lease import watch_command
from orchestrator.domain.observation import Absent, Present, Unknown, World
from orchestrator.domain.plan import Kind, Outcome, Plan, Verb
from orchestrator.domain.record import Record, current_node
from orchestrator.domain.spec import Spec
from orchestrator.domain.status import DeploymentState
from orchestrator.planning.tpu.preemption import being_taken
from orchestrator.planning.tpu.race import LOST

_ENDS = {
    Outcome.DONE: DeploymentState.DONE,
    Outcome.UNCOMMITTED: DeploymentState.UNCOMMITTED,
    Outcome.FAILED: DeploymentState.FAILED,
    Outcome.LIMIT_REACHED: DeploymentState.LIMIT_REACHED,
    Outcome.REFUSED: DeploymentState.REFUSED,
}


def deployment_state(
    spec: Spec, world: World, record: Record, plan: Plan, *, watched: bool, deleted: bool = False
) -> DeploymentState:
    """
    Return the state of a deployment from what was observed and what a pass would do.

    *watched* says that a loop carries the plan out; *deleted* that its data was deleted and nothing was
    started since.
    """
    if not record.job.bundle:
        return _not_up(world, record, plan, deleted=deleted)
    if plan.outcome is not None:
        return _ENDS[plan.outcome]
    if isinstance(world.nodes, Unknown) or isinstance(world.heartbeats, Unknown):
        return DeploymentState.UNKNOWN
    if spec.fleet:
        # Its TPUs are deployments of their own.
        return DeploymentState.RUNNING if isinstance(world.vm, Present) else DeploymentState.STARTING
    leaving = {c.incarnation for c in plan.changes if (c.kind, c.verb) == (Kind.NODE, Verb.DELETE)}
    if not any(n.state not in LOST and n.incarnation not in leaving for n in world.known_nodes):
        return _without_tpu(world, record, watched=watched)
    node = current_node(world, record)
    if node is not None and being_taken(world, node):
        return DeploymentState.PREEMPTING
    phases = {heartbeat.phase for heartbeat in world.known_heartbeats}
    if phases and phases <= {Phase.RUN, Phase.ENDED, Phase.DONE}:
        return DeploymentState.RUNNING
    return DeploymentState.RESUMING if record.deadline.progress.step else DeploymentState.STARTING


def _not_up(world: World, record: Record, plan: Plan, *, deleted: bool) -> DeploymentState:
    if deleted:
        return DeploymentState.DELETED
    if world.known_nodes or isinstance(world.vm, Present):
        return DeploymentState.REMAINING
    if isinstance(world.nodes, Unknown) or isinstance(world.vm, Unknown):
        return DeploymentState.UNKNOWN
    # What has come of the job is worth more than that its machines are gone.
    if plan.outcome is not None:
        return _ENDS[plan.outcome]
    was_up = was_started(record) and not isinstance(world.bucket, Absent)
    return DeploymentState.DOWN if was_up else DeploymentState.NOT_UP


def was_started(record: Record) -> bool:
    """Return whether `up` has ever run; `down` keeps what was billed, and forgets the start."""
    return bool(record.started_at or record.spans or record.up_times)


def resuming_command(spec: Spec, record: Record) -> str:
    """Return the command with which a deployment goes on: `watch` once `up` has recorded a job that goes on."""
    goes_on = record.job.bundle and record.outcome is None
    return watch_command(on_vm=spec.watch.on_vm) if goes_on else "tpuctl up"


def _without_tpu(world: World, record: Record, *, watched: bool) -> DeploymentState:
    # A request that was never fulfilled leaves nothing that could be lost.
    begun = record.up_times[-1] if record.up_times else record.started_at
    had_one = any(span.kind is Kind.NODE and span.since >= begun for span in record.spans)
    lost = had_one or bool(world.known_nodes)
    if watched:
        return DeploymentState.REPLACING if lost else DeploymentState.STARTING
    return DeploymentState.TPU_LOST if lost else DeploymentState.NO_TPU
