"""Compute the plan of a whole `up` by running the same decisions over worlds in which every step succeeds."""

from dataclasses import replace

from orchestrator.contract.phase import Phase
from orchestrator.domain import names
from orchestrator.domain.catalog import Accelerator
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    Claim,
    Node,
    NodeState,
    Present,
    Vm,
    VmState,
    Worker,
    World,
)
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.record import JobRecord, Record
from orchestrator.domain.spec import Spec
from orchestrator.planning.decide import decide
from orchestrator.planning.job import push_mark
from orchestrator.planning.sidecars import with_settings
from orchestrator.planning.tpu.race import accepted, with_request
from orchestrator.planning.update_record import update_record

PASSES = 10


def plan_from_nothing(spec: Spec, accelerator: Accelerator | None, bundle: str, agent: str) -> Plan:
    """
    Return all changes that `up` makes if nothing exists and nothing fails, in order.

    A bucket or VM that is to be adopted counts as existing.
    """
    adopted = Present(Bucket(names.bucket_name(spec, ""), names.home_region(spec)))
    bucket = adopted if spec.bucket.adopt else Absent()
    their_vm = Vm(names.vm_name(spec), names.vm_zone(spec), VmState.RUNNING, labels=names.labels(spec, "vm"))
    vm = Present(their_vm) if names.takes_vm(spec) else Absent()
    nothing = World(bucket, vm, Present(()), Present(()))
    return whole_plan(spec, accelerator, nothing, Record(job=JobRecord(bundle=bundle, agent=agent)))


def whole_plan(spec: Spec, accelerator: Accelerator | None, world: World, record: Record) -> Plan:
    """Return all changes that `up` makes starting from *world* if nothing fails, in order."""
    changes: list[Change] = []
    for _ in range(PASSES):
        record = update_record(record, world)
        plan = decide(spec, world, record)
        if plan.empty:
            return replace(plan, changes=tuple(changes), waits=() if changes else plan.waits)
        for change in plan.changes:
            changes.append(change)
            world, record = _succeed(change, spec, accelerator, world, record)
    # A bug of ours: PASSES exceeds the longest chain of decisions.
    raise AssertionError("decide does not come to rest in a world where every step succeeds")


def _succeed(
    change: Change, spec: Spec, accelerator: Accelerator | None, world: World, record: Record
) -> tuple[World, Record]:
    """Return world and record as the next pass would find them after *change* has succeeded."""
    if change.kind is Kind.BUCKET:
        made = Bucket(change.name, change.zone)
        record = replace(record, bucket=replace(record.bucket, ready=True))
        return replace(world, bucket=Present(made)), record
    if change.kind is Kind.SIDECARS:
        role = "vm" if change.name == names.vm_name(spec) else "tpu"
        return world, replace(record, sidecars=with_settings(record, spec, role))
    if change.verb is Verb.DELETE:
        return replace(
            world, nodes=Present(tuple(n for n in world.known_nodes if n.name != change.name))
        ), record
    if change.kind is Kind.VM:
        state = VmState.TERMINATED if change.verb is Verb.STOP else VmState.RUNNING
        vm = Vm(change.name, change.zone, state, labels=names.labels(spec, "vm"))
        return replace(world, vm=Present(vm)), replace(record, sidecars=with_settings(record, spec, "vm"))
    if change.kind is Kind.BUNDLE:
        uploaded = f"{record.job.bundle}:{record.job.agent}"
        return world, replace(record, job=replace(record.job, uploaded=uploaded))
    count = accelerator.hosts if accelerator else 1
    if change.kind is Kind.NODE:
        workers = tuple(Worker(index, f"worker-{index}") for index in range(count))
        number = change.incarnation or 0
        record = with_request(
            record, change.zone, number, change.round, world.observed_at, change.type, beside=change.beside
        )
        record = accepted(record, number)
        record = replace(record, sidecars=with_settings(record, spec, "tpu"))
        # The first candidate wins; the others are deleted before they are READY.
        first = number == (change.round if change.beside else record.node.incarnation)
        shows = NodeState.READY if first else NodeState.CREATING
        labels = names.labels(spec, "tpu", number, change.round)
        node = Node(change.name, change.zone, shows, number, workers=workers, labels=labels)
        claim = Present(Claim(record.race.round, max(record.node.incarnation, record.race.round)))
        return replace(
            world, nodes=Present((*world.known_nodes, node)), heartbeats=Present(()), claim=claim
        ), record
    number, bundle = record.node.incarnation, record.job.bundle
    heartbeats = tuple(
        Heartbeat(number, index, Phase.RUN, world.observed_at, workers=count, bundle=bundle)
        for index in range(count)
    )
    pushed = replace(record, job=replace(record.job, pushed=push_mark(record), settings_due=False))
    return replace(world, heartbeats=Present(heartbeats)), pushed
