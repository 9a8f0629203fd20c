"""What holds for every world and every record, however strange."""

from dataclasses import replace

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.contract.phase import Phase
from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    Node,
    NodeState,
    Operation,
    OperationResult,
    Present,
    Unknown,
    Vm,
    VmState,
    Worker,
    World,
)
from orchestrator.domain.plan import Kind, LoopRule, Outcome, Verb
from orchestrator.domain.record import Refusal, Span
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide, decide_bucket
from orchestrator.planning.job import decide_job
from orchestrator.planning.tpu.node_decision import decide_node
from orchestrator.planning.update_record import update_record
from orchestrator.planning.vm import decide_vm
from tests.kit.records import record_of
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, spec

ZONES = st.sampled_from([ZONE, OTHER_ZONE])
TIMES = st.floats(NOW - 1e5, NOW)
UNKNOWN = st.builds(Unknown, st.just("503"), st.sampled_from(Retry))
NUMBERS = st.integers(0, 4)
WORKERS = st.lists(st.builds(Worker, NUMBERS, st.just("10.0.0.1")), max_size=2).map(tuple)
NODES = st.lists(
    st.builds(
        Node,
        st.sampled_from(["demo-tpu-g1", "demo-tpu-g2", "odd"]),
        ZONES,
        st.sampled_from(NodeState),
        st.none() | NUMBERS,
        healthy=st.booleans(),
        workers=WORKERS,
        created_at=TIMES,
    ),
    max_size=3,
).map(tuple)
BEATS = st.lists(
    st.builds(
        Heartbeat,
        NUMBERS,
        st.integers(0, 2),
        st.sampled_from(Phase),
        TIMES,
        workers=st.integers(1, 2),
        bundle=st.sampled_from(["", "b", "c"]),
        step=st.none() | NUMBERS,
    ),
    max_size=3,
).map(tuple)
OPERATIONS = st.builds(
    Operation,
    st.sampled_from("ab"),
    st.sampled_from([Kind.NODE, Kind.VM]),
    st.sampled_from([Verb.CREATE, Verb.DELETE, Verb.START, Verb.STOP]),
    st.sampled_from(["demo-tpu-g1", "demo-vm"]),
    ZONES,
    st.none() | NUMBERS,
    TIMES,
)
RESULTS = st.builds(OperationResult, OPERATIONS, st.booleans(), st.none() | st.sampled_from(Retry))
VMS = st.builds(Vm, st.just("demo-vm"), ZONES, st.sampled_from(VmState), spot=st.booleans())
BUCKETS = st.builds(Bucket, st.just("b"), st.sampled_from(["us-central1", "us-central1", "asia-east1"]))


def observed(values):
    """Return any of the three kinds of observation."""
    return st.builds(Present, values) | st.just(Absent()) | UNKNOWN


WORLDS = st.builds(
    World,
    observed(BUCKETS),
    observed(VMS),
    st.builds(Present, NODES) | UNKNOWN,
    st.builds(Present, BEATS) | UNKNOWN,
    st.lists(RESULTS, max_size=2).map(tuple),
    st.just(NOW),
)
RECORDS = st.builds(
    record_of,
    started_at=TIMES,
    incarnation=NUMBERS,
    zone=ZONES,
    accepted=st.booleans(),
    requested_at=TIMES,
    vm_accepted=st.booleans(),
    bucket_observed=st.booleans(),
    bucket_ready=st.booleans(),
    bundle=st.sampled_from(["", "b"]),
    agent=st.just("a"),
    uploaded=st.sampled_from(["", "b:a"]),
    pushed=st.sampled_from(["", "b", "1:b"]),
    ssh_failed_since=st.none() | TIMES,
    ssh_next_try_at=TIMES,
    operations=st.lists(OPERATIONS, max_size=2).map(tuple),
    refusals=st.lists(
        st.builds(Refusal, TIMES, ZONES, st.sampled_from(Retry), kind=st.sampled_from([Kind.NODE, Kind.VM])),
        max_size=4,
    ).map(tuple),
    spans=st.lists(
        st.builds(Span, st.sampled_from([Kind.NODE, Kind.VM]), st.just("x"), ZONES, TIMES), max_size=2
    ).map(tuple),
    outcome=st.sampled_from([None, None, Outcome.DONE, Outcome.FAILED]),
)
SPECS = st.sampled_from(
    [
        spec(),
        spec(vm="none"),
        spec(job=replace(spec().job, run_on="vm")),
        spec(watch=replace(spec().watch, budget_usd=5.0)),
    ]
)
fast = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def of_node(plan, verb):
    """Return the plan's changes of nodes with one verb."""
    return [c for c in plan.changes if c.kind is Kind.NODE and c.verb is verb]


@fast
@given(SPECS, WORLDS, RECORDS, st.floats(0, 10))
def test_a_decision_is_always_made_and_always_the_same(deployment, world, record, usd):
    """
    Pure and total: no world and no record make it raise, and equal questions get equal answers.

    At most one node is asked for in a pass, and none when the deployment has ended.
    """
    learned = update_record(record, world)
    plan = decide(deployment, world, learned, usd)
    assert plan == decide(deployment, world, learned, usd)
    assert len(of_node(plan, Verb.CREATE)) <= 1
    assert not (plan.outcome is not None and of_node(plan, Verb.CREATE))
    for change in of_node(plan, Verb.CREATE):
        assert change.incarnation >= learned.node.incarnation
        assert change.incarnation >= 1
    for change in of_node(plan, Verb.DELETE):
        assert any(n.name == change.name for n in world.nodes.value)


@fast
@given(SPECS, WORLDS, RECORDS)
def test_what_cannot_be_observed_is_not_changed(deployment, world, record):
    """Unknown nodes: no node is made or deleted; the same for VM and bucket."""
    for name, kind in (("nodes", Kind.NODE), ("vm", Kind.VM), ("bucket", Kind.BUCKET)):
        dark = replace(world, **{name: Unknown("503")})
        plan = decide(deployment, dark, update_record(record, dark))
        assert kind not in {c.kind for c in plan.changes}


@fast
@given(SPECS, WORLDS, RECORDS)
def test_each_decision_names_its_rule(deployment, world, record):
    """What changes or waits does so by a rule of its own, and what is well by one that says so."""
    learned = update_record(record, world)
    well = {
        LoopRule.BUCKET_PRESENT,
        LoopRule.VM_NONE,
        LoopRule.VM_RUNNING,
        LoopRule.TPU_READY,
        LoopRule.TPU_REPORTS,
        LoopRule.JOB_RUNS,
    }
    for decision in (decide_bucket, decide_vm, decide_node, decide_job):
        step = decision(deployment, world, learned)
        assert step.rule is not LoopRule.END_NONE
        # A TPU that is well may stand beside older ones that are deleted, or save without a successor.
        if decision is decide_node:
            assert not step.settled or step.rule in {*well, LoopRule.TPU_NEXT}
        else:
            assert step.settled is (step.rule in well)


@fast
@given(WORLDS, RECORDS)
def test_learning_never_forgets_an_incarnation(world, record):
    """The newest incarnation only grows, and learning twice from the same world adds nothing."""
    once = update_record(record, world)
    assert once.node.incarnation >= record.node.incarnation
    again = update_record(once, replace(world, operations=()))
    assert (again.node.incarnation, again.first_seen, again.spans) == (
        once.node.incarnation,
        once.first_seen,
        once.spans,
    )
