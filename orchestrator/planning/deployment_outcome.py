"""Decide whether a deployment has ended, and wind its machines down."""

from dataclasses import replace
from enum import Enum

from orchestrator.contract.phase import AT_REST, Phase
from orchestrator.domain import names
from orchestrator.domain.events import Event
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import Bucket, Operation, Present, Unknown, VmState, World
from orchestrator.domain.plan import MAKING, Change, Kind, Outcome, Plan, Verb
from orchestrator.domain.record import Record, finished, surely_absent
from orchestrator.domain.spec import Spec
from orchestrator.domain.text.hints import OWN_STEPS
from orchestrator.domain.wait import Wait
from orchestrator.planning.events import preemption, with_preemption
from orchestrator.planning.job import SILENCE, heartbeat_interval, is_of_before
from orchestrator.planning.tpu.never_reported import all_silent
from orchestrator.planning.tpu.node_decision import delete_node, deleting
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT
from orchestrator.planning.uncommitted import ended_uncommitted, uncommitted_end_text
from orchestrator.planning.update_record import update_record
from orchestrator.planning.vm import give_up_start

VM_STARTING = frozenset(
    {VmState.PROVISIONING, VmState.STAGING, VmState.PENDING, VmState.REPAIRING, VmState.OTHER}
)
MAX_RESCUE = 3900.0
"""Seconds to wait for a gang that was given up; an agent rescues files for an hour at most."""
_RESTING = frozenset(AT_REST)
ALL_DONE = "all workers report that the job is done"
_REACHED = "has reached job.target_steps"


def target_reached(step: int, target: int) -> str:
    """Return why a job whose checkpoint *step* has reached its *target* stays done, whatever its code is."""
    return f"checkpoint {step} {_REACHED} ({target})"


def more_training(message: str) -> str:
    """Return how a job that is done for the reason *message* trains on."""
    if _REACHED not in message:
        return "More training: raise job.target_steps or change the code, then `tpuctl up`"
    return (
        f"Changed code alone trains nothing more: raise job.target_steps, {OWN_STEPS}, then `tpuctl up`. To train "
        "from the beginning, use another name or `tpuctl down --delete-data` first"
    )


VM_LAST_WAKE = 5.0
"""Seconds until the next pass while the VM waits for the TPU's deletion."""


_ENDED = {
    Outcome.FAILED: "the job has failed",
    Outcome.UNCOMMITTED: "the job has ended without a checkpoint",
    Outcome.LIMIT_REACHED: "its budget or ttl is used up",
    Outcome.REFUSED: "it was refused",
}
"""Why machines are removed, where the outcome's own word is none for people."""


class Unfinished(Enum):
    """What an end still waits for."""

    UNKNOWN = "unknown"
    TPU = "tpu"
    UNLISTED = "unlisted"
    COMING = "coming"
    VM_LAST = "vm last"

    @property
    def text(self) -> str:
        """Return the sentence about it, without a full stop."""
        return {
            Unfinished.UNKNOWN: "the end is not certain yet: the cloud did not answer",
            Unfinished.TPU: "the TPU is being deleted",
            Unfinished.UNLISTED: "the TPU is not listed any more; a second look makes sure that it is gone",
            Unfinished.COMING: "a machine is still being made; it is removed as soon as it shows",
            Unfinished.VM_LAST: "the VM is stopped last",
        }[self]


def judge_end(spec: Spec, world: World, record: Record, usd_so_far: float) -> tuple[Outcome | None, str]:
    """Return how the deployment has ended (done, failed, over budget or time) and why; None if it has not."""
    # First of all: a bucket in another region is refused before anything is created that needs cleaning up.
    misplaced = _misplaced(spec, world)
    if misplaced is not None:
        where = f"lies in {misplaced.location}, the TPU in {names.home_region(spec)}"
        return Outcome.REFUSED, f"bucket {misplaced.name} {where}: slow, and billed as egress"
    # Done precedes budget and ttl: a job that has succeeded is never reported as over budget.
    if finished(world):
        return Outcome.DONE, ALL_DONE
    uncommitted = ended_uncommitted(world.known_heartbeats)
    if uncommitted:
        return Outcome.UNCOMMITTED, uncommitted_end_text(spec.job.checkpoint, uncommitted)
    failed = _failed(spec, world, record)
    if failed is not None:
        return Outcome.FAILED, f"worker {failed.worker}: {failed.message or 'the job gave up'}"
    silent = all_silent(spec, world, record)
    if silent is not None:
        return Outcome.FAILED, silent.text(record)
    if _is_over(spec, world, record):
        return Outcome.LIMIT_REACHED, f"the time to live of {spec.watch.ttl} is over"
    budget = spec.watch.budget_usd
    if budget is not None and usd_so_far >= budget:
        message = f"the budget is used up: {usd_so_far:.2f} of {budget:.2f} USD, by the upper prices"
        return Outcome.LIMIT_REACHED, message
    if record.outcome in {Outcome.DONE, Outcome.UNCOMMITTED}:
        return record.outcome, record.message
    return None, ""


def _is_over(spec: Spec, world: World, record: Record) -> bool:
    """Return whether the time to live is over."""
    return bool(record.started_at) and world.observed_at - record.started_at >= spec.watch.ttl


def limit_reached(spec: Spec, world: World, record: Record) -> str:
    """Return the setting whose limit has ended the deployment, in the order of `judge_end`."""
    return "watch.ttl" if _is_over(spec, world, record) else "watch.budget_usd"


def _failed(spec: Spec, world: World, record: Record) -> Heartbeat | None:
    """
    Return the report of a worker that has given up; None while another worker may still save its files.

    One that gave up on the code before a push does not end the deployment: it starts again with the new code.
    A silent worker is not waited for, nor one that takes longer than MAX_RESCUE, because its machine may
    be lost while the others cost money.
    """
    heartbeats = world.known_heartbeats
    failed = [b for b in heartbeats if b.phase is Phase.FAILED and not is_of_before(spec, world, record, b)]
    silence = SILENCE * heartbeat_interval(spec)
    # Their machines may still be uploading files, which a deletion now would lose.
    busy = [b for b in heartbeats if b.phase not in _RESTING and world.observed_at - b.updated < silence]
    late = bool(failed) and world.observed_at - failed[0].updated > MAX_RESCUE
    return failed[0] if failed and (late or not busy) else None


def self_delete_at(spec: Spec, record: Record) -> float:
    """Return when TPUs may delete themselves, in seconds since the epoch; 0 if they may not."""
    # 0 means never: TPUs read this, and may act on it only if the user has allowed it.
    return record.started_at + spec.watch.ttl if spec.watch.self_delete and record.started_at else 0.0


def _misplaced(spec: Spec, world: World) -> Bucket | None:
    """Return a bucket in another region than the TPU: each checkpoint would be billed as egress."""
    bucket = world.bucket.value if isinstance(world.bucket, Present) else None
    return None if bucket is None or bucket.location == names.home_region(spec) else bucket


def last_observed(spec: Spec, before: Record, world: World) -> tuple[Record, Event | None]:
    """Return the record with what *world* shows before the deployment is deleted, and the event of a preemption."""
    # Not the bucket: a record that had never found it here must not be written over the one that is there.
    after = replace(update_record(before, world), bucket=before.bucket)
    if finished(world) and after.outcome is None:
        after = replace(after, outcome=Outcome.DONE, message=ALL_DONE)
    lost = preemption(spec, before, after, world)
    return (after if lost is None else with_preemption(after)), lost


def wind_down(world: World, record: Record, outcome: Outcome, message: str, *, vm_last: bool = False) -> Plan:
    """
    Delete every node and stop the VM; the bucket and the VM's disk stay.

    With *vm_last* the loop may run on that VM, so it is stopped only when no node is left and the end is
    recorded.
    """
    vm, nodes = world.vm, world.known_nodes
    ended = _ENDED.get(outcome, f"the job is {outcome.value}")
    changes = [delete_node(n, ended) for n in nodes if not deleting(n, world, record)]
    unfinished, wake_in = _unfinished(world, record), None
    if isinstance(vm, Present) and vm.value.state is VmState.RUNNING:
        if vm_last and (unfinished or record.outcome is not outcome):
            unfinished, wake_in = (*unfinished, Unfinished.VM_LAST), VM_LAST_WAKE
        else:
            changes.append(Change(Kind.VM, Verb.STOP, vm.value.name, ended, vm.value.zone))
    elif (given_up := give_up_start(world, record, CREATE_TIMEOUT)) and not _recent(world, record):
        # An operation that never ends must not delay the end for ever.
        changes.append(given_up)
    return Plan(tuple(changes), tuple(Wait(one.text) for one in unfinished), outcome, message, wake_in)


def _unfinished(world: World, record: Record) -> tuple[Unfinished, ...]:
    """Return what is not certain to be gone yet, besides the VM."""
    coming = (Unfinished.COMING,) if _on_its_way(world, record) else ()
    if isinstance(world.nodes, Unknown) or isinstance(world.vm, Unknown):
        return (Unfinished.UNKNOWN, *coming)
    if world.known_nodes:
        return (Unfinished.TPU, *coming)
    # An empty list may be older than the TPU, which would then keep running and be billed.
    return coming if _surely_gone(world, record) else (Unfinished.UNLISTED, *coming)


def _surely_gone(world: World, record: Record) -> bool:
    """Return whether an empty list is proven: by a finished deletion, or by two lists CONFIRMED_AFTER apart."""
    requested = record.node.incarnation > 0 and record.node.requested_at > 0
    numbers = [
        *([record.node.incarnation] if requested else []),
        *(r.incarnation for r in record.race.candidates),
    ]
    return all(surely_absent(record, world, number) for number in numbers)


def _on_its_way(world: World, record: Record) -> bool:
    """Return whether a machine may still appear; an end that does not wait for it would leave it running."""
    vm = world.vm
    # A create under way cannot be cancelled: wait for it, then delete the machine.
    starting = isinstance(vm, Present) and vm.value.state in VM_STARTING
    return starting or any(o.verb in MAKING for o in _recent(world, record))


def _recent(world: World, record: Record) -> tuple[Operation, ...]:
    """Return the operations that may still end: those younger than CREATE_TIMEOUT."""
    return tuple(o for o in record.operations if world.observed_at - o.started_at < CREATE_TIMEOUT)
