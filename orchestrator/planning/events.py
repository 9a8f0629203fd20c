"""Derive the events of a pass from the record before and after it. Pure."""

from collections.abc import Iterator
from dataclasses import replace

from orchestrator.domain.events import Event, EventKind
from orchestrator.domain.first_seen import VM_RUNNING, Condition, of_attempt, of_node
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.machines.maintenance import maintenance_text
from orchestrator.domain.observation import NodeState, Present, World
from orchestrator.domain.record import TERMINAL, Record, current_node, has_successors
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.clean_text import cut
from orchestrator.planning.fleet.deployments import fleet_of
from orchestrator.planning.job import from_zero_since, later_attempt
from orchestrator.planning.tpu.preemption import workers_stopped
from orchestrator.planning.tpu.queued_tpu import end_text, has_failed
from orchestrator.planning.uncommitted import has_no_steps, lost_text

MAX_ATTEMPT = 400
"""Most characters of the event of an attempt: the job's own words are part of it."""
MAX_END = 240
"""Most characters of how the attempt before ended: where the next one began must find room as well."""
TASK_GOES_ON = "a task that ran there goes on elsewhere, from its newest checkpoint"


def events_of(before: Record, after: Record, world: World, failures: int) -> Iterator[Event]:
    """
    Yield an event for each difference: TPU READY, VM RUNNING, maintenance announced, an attempt, a refusal.

    *failures* is `job.failures`.
    """
    number, now = after.node.incarnation, world.observed_at
    new = after.first_seen.keys() - before.first_seen.keys()
    node = current_node(world, after)
    if of_node(number, NodeState.READY) in new:
        text = f"TPU {node.name if node else f'#{number}'} is READY in {after.node.zone}"
        yield Event(now, EventKind.READY, text, {"incarnation": number})
    if VM_RUNNING in new and isinstance(world.vm, Present):
        vm = world.vm.value
        yield Event(now, EventKind.VM_RUNNING, f"VM {vm.name} is RUNNING in {vm.zone}")
    if of_node(number, Condition.MAINTENANCE) in new and node is not None:
        text = f"TPU {node.name}: {maintenance_text(node.maintenance)}; it is kept as long as it works"
        yield Event(now, EventKind.MAINTENANCE, text, {"incarnation": number})
    again = later_attempt(world, after)
    if again is not None and of_attempt(number, again.attempt) in new:
        text = cut(_attempt_text(again, failures), MAX_ATTEMPT)
        yield Event(now, EventKind.ATTEMPT, text, {"incarnation": number, "attempt": again.attempt})
    for refusal in after.refusals[len(before.refusals) :]:
        text = f"refused in {refusal.zone} ({refusal.retry.value}): {refusal.text}"
        yield Event(now, EventKind.REFUSED, text, {"zone": refusal.zone, "retry": refusal.retry.value})


def _attempt_text(heartbeat: Heartbeat, failures: int) -> str:
    """Return how the attempt before failed, if it did, and which one began, from where and why there."""
    where = "at the beginning" if heartbeat.resumed_from is None else f"from step {heartbeat.resumed_from}"
    if heartbeat.ended_message:
        count = f" ({heartbeat.ended_failures} of {failures})" if heartbeat.ended_failures else ""
        end = cut(heartbeat.ended_message, MAX_END)
        why = "; ".join(filter(None, (heartbeat.aside_message, heartbeat.attempt_message)))
        failed = f"attempt {heartbeat.attempt - 1} failed{count} on TPU #{heartbeat.incarnation}: {end}"
        start = where if heartbeat.resumed_from is not None else "from the beginning"
        return f"{failed}; attempt {heartbeat.attempt} started {start}{f' ({why})' if why else ''}"
    # An older agent tells only of failures without progress, and beside them why an older checkpoint was chosen.
    texts = (
        (heartbeat.attempt_message,)
        if heartbeat.attempt_message
        else (heartbeat.failure_message, heartbeat.message)
    )
    reasons = dict.fromkeys(text for text in texts if text)
    text = f"attempt {heartbeat.attempt} of the job began on TPU #{heartbeat.incarnation}, {where}"
    return f"{text}: {'; '.join(reasons)}" if reasons else text


def preemption(spec: Spec, before: Record, after: Record, world: World) -> Event | None:
    """
    Return the preemption of the newest TPU.

    Only in the one pass that first observes its end, or its workers at rest.
    """
    # A successor may have got the job since the pass before; what is lost then is the TPU before it.
    succeeded = has_successors(before) and after.node.incarnation != before.node.incarnation
    record = before if succeeded else after
    node, number = current_node(world, record), record.node.incarnation
    stopped = {Condition.WORKERS_STOPPED} if spec.job.run_on == "tpu" else set()
    if node is None or has_failed(node):
        return None
    if {of_node(number, sign) for sign in TERMINAL | stopped} & before.first_seen.keys():
        return None
    if node.state not in TERMINAL and not (stopped and workers_stopped(world, node)):
        return None
    what = "is being preempted"
    if node.state in TERMINAL:
        what = end_text(spec, before, node, world.observed_at)
    # What a node runs itself is Slurm, and what it would lose is not its own.
    work = TASK_GOES_ON if fleet_of(spec) else lost_text(spec.job.checkpoint, world, record)
    text = f"TPU {node.name} {what}{f'; {work}' if work else ''}"
    return Event(world.observed_at, EventKind.PREEMPTED, text, {"incarnation": node.incarnation})


def with_preemption(record: Record) -> Record:
    """Return the record with one preemption more."""
    return replace(record, node=replace(record.node, preemptions=record.node.preemptions + 1))


def start_from_zero(spec: Spec, before: Record, after: Record, world: World) -> Event | None:
    """
    Return the event of a replacement whose job has started at step 0, so that earlier training is lost.

    Only in the one pass that first observes it, with the time at which it was: no watcher may have run then.
    """
    number, began = after.node.incarnation, from_zero_since(world, after)
    if began is None or not after.node.preemptions or has_no_steps(spec.job.checkpoint):
        return None
    if of_node(number, Condition.FROM_ZERO) in before.first_seen:
        return None
    text = f"TPU #{number} began at STEP 0: no checkpoint was saved before"
    return Event(began, EventKind.STARTED_OVER, text, {"incarnation": number})
