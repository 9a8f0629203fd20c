"""Decisions: what one pass changes, for every state of the world that we know of."""

from dataclasses import replace

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.observation import (
    Absent,
    Bucket,
    NodeState,
    Operation,
    Present,
    Unknown,
    VmState,
    Worker,
)
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.domain.record import Record, Refusal, Span
from orchestrator.domain.spec import BucketSpec, JobSpec, WatchSpec
from orchestrator.domain.text.units import Duration
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.intended_record import intended
from orchestrator.planning.tpu.next_zone import create_gate
from orchestrator.planning.tpu.node_verdict import CREATE_TIMEOUT, REPAIR_TIMEOUT
from orchestrator.planning.tpu.race import accepted
from orchestrator.planning.update_record import update_record
from tests.kit.records import record_of
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, heartbeat, node, record, spec, vm, world


def steps(plan):
    """Return what a plan changes, in short."""
    return [(c.kind, c.verb, c.incarnation if c.kind is Kind.NODE else None) for c in plan.changes]


SILENT = Present((heartbeat(updated=NOW - 200),))
NODE_CREATE_2 = (Kind.NODE, Verb.CREATE, 2)
NODE_DELETE_1 = (Kind.NODE, Verb.DELETE, 1)


def test_a_running_deployment_is_not_changed():
    """When everything is as it should be, the plan is empty and waits for nothing."""
    plan = decide(spec(), world(), record())
    assert plan.empty
    assert plan.waiting == ()


def test_the_first_pass_creates_bucket_vm_and_tpu_side_by_side():
    """Nothing exists yet: the three resources are asked for in one plan."""
    empty = world(bucket=Absent(), vm=Absent(), nodes=Present(()), heartbeats=Present(()))
    plan = decide(spec(), empty, record_of(bundle="b", agent="a"))
    assert steps(plan) == [
        (Kind.BUCKET, Verb.CREATE, None),
        (Kind.VM, Verb.CREATE, None),
        (Kind.NODE, Verb.CREATE, 1),
    ]


@pytest.mark.parametrize("state", [NodeState.PREEMPTED, NodeState.TERMINATED, NodeState.STOPPED])
def test_a_lost_node_is_deleted_and_the_next_incarnation_created_at_once(state):
    """The API's own terminal state needs no second witness, and a report of a moment ago is older than it."""
    plan = decide(spec(), world(nodes=Present((node(state=state),))), record())
    assert steps(plan) == [NODE_DELETE_1, NODE_CREATE_2]


def test_a_request_names_the_tpu_that_it_replaces_before_and_after_that_one_is_deleted():
    """One cause has one text; in the deletion, beside the name, "it" is enough."""
    lost = Present((node(state=NodeState.PREEMPTED),))
    gone, request = decide(spec(), world(nodes=lost), record()).changes
    assert (gone.message, request.message) == ("it is PREEMPTED", "it replaces TPU #1")
    ran = Span(Kind.NODE, "demo-tpu-g1", ZONE, NOW - 900, NOW - 9)
    deleted, none = {"accepted": False, "requested_at": 0.0}, world(nodes=Present(()))
    later = decide(spec(), none, record(**deleted, spans=(ran,))).changes
    assert [c.message for c in later if c.kind is Kind.NODE] == ["it replaces TPU #1"]
    # A number that was set aside, as `up` does after a job that is done.
    aside = decide(spec(), none, record(**deleted, incarnation=2, spans=(ran,))).changes
    assert [c.message for c in aside if c.kind is Kind.NODE] == ["there is none now"]


def test_a_node_that_a_user_deletes_is_replaced_but_not_deleted_again():
    """DELETING is on its way out already."""
    going = node(state=NodeState.DELETING, created_at=NOW - 10)
    assert steps(decide(spec(), world(nodes=Present((going,))), record())) == [NODE_CREATE_2]


@pytest.mark.parametrize("observed", ["bucket", "vm", "nodes", "heartbeats"])
def test_what_is_unknown_leads_to_no_change(observed):
    """Unknown is not absent: an error or a partial list creates and destroys nothing."""
    plan = decide(spec(), world(**{observed: Unknown("503")}), record())
    assert plan.empty
    assert any("503" in text for text in plan.waiting)


def test_a_vanished_node_counts_as_lost_only_after_a_second_observation():
    """One empty list is not believed; two, 30 s apart, are."""
    gone = world(nodes=Present(()))
    first = record(first_seen={"node:1:absent": NOW - 5})
    assert decide(spec(), gone, first).empty
    second = record(first_seen={"node:1:absent": NOW - 31})
    assert steps(decide(spec(), gone, second)) == [NODE_CREATE_2]


def test_a_create_that_was_never_confirmed_is_repeated_under_the_same_name():
    """A killed controller repeats its own create: the name makes that safe."""
    plan = decide(spec(), world(nodes=Present(())), record(incarnation=3, accepted=False))
    assert steps(plan) == [(Kind.NODE, Verb.CREATE, 3)]


def test_a_create_whose_operation_runs_is_waited_for():
    """The node may not be observed yet although its create was accepted."""
    running = Operation("o", Kind.NODE, Verb.CREATE, "demo-tpu-g1", ZONE, 1)
    plan = decide(spec(), world(nodes=Present(())), record(operations=(running,), requested_at=NOW - 5))
    assert plan.empty


def test_a_create_without_end_is_given_up():
    """A stuck operation must not hold the deployment for ever."""
    running = Operation("o", Kind.NODE, Verb.CREATE, "demo-tpu-g1", ZONE, 1)
    old = record(operations=(running,), requested_at=NOW - CREATE_TIMEOUT)
    assert steps(decide(spec(), world(nodes=Present(())), old)) == [NODE_CREATE_2]


@pytest.mark.parametrize(
    "state", [NodeState.REPAIRING, NodeState.HIDDEN, NodeState.UNKNOWN, NodeState.RESTARTING]
)
def test_a_passing_state_is_waited_out_and_then_replaced(state):
    """REPAIRING and its like may heal; after the deadline they count as lost."""
    odd = world(nodes=Present((node(state=state),)), heartbeats=SILENT)
    key = f"node:1:{state.name.lower()}"
    assert decide(spec(), odd, record(first_seen={key: NOW - 10})).empty
    late = record(first_seen={key: NOW - REPAIR_TIMEOUT})
    assert steps(decide(spec(), odd, late)) == [NODE_DELETE_1, NODE_CREATE_2]


def test_nodes_of_older_incarnations_are_deleted():
    """Whatever was left behind by a killed controller is deleted: it is billed and holds quota."""
    both = world(nodes=Present((node(1), node(2))), heartbeats=Present((heartbeat(incarnation=2),)))
    assert steps(decide(spec(), both, record(incarnation=2))) == [NODE_DELETE_1]


def test_a_ready_node_that_is_silent_and_out_of_reach_is_replaced():
    """READY does not mean alive: a silent worker whose SSH failed for six heartbeats counts as preempted."""
    lost = record(ssh_failed_since=NOW - 180, ssh_next_try_at=NOW + 1)
    silent = world(heartbeats=Present((heartbeat(updated=NOW - 400),)))
    assert steps(decide(spec(), silent, lost)) == [NODE_DELETE_1, NODE_CREATE_2]


def test_one_failed_probe_does_not_condemn_a_ready_node():
    """A worker that reports is alive behind any firewall, and failures of long ago are no failures now."""
    lost = record(ssh_failed_since=NOW - 900, ssh_next_try_at=NOW + 1)
    assert decide(spec(), world(), lost).empty
    silent = world(heartbeats=Present((heartbeat(updated=NOW - 400),)))
    long_ago = record(ssh_failed_since=NOW - 900, ssh_next_try_at=NOW - 600)
    assert NODE_DELETE_1 not in steps(decide(spec(), silent, long_ago))


def test_after_a_stockout_the_next_zone_is_asked():
    """Zones are tried in order of preference."""
    refused = record(accepted=False, refusals=(Refusal(NOW - 1, ZONE, Retry.CAPACITY),))
    plan = decide(spec(), world(nodes=Present(())), refused)
    assert [(c.zone, c.incarnation) for c in plan.changes] == [(OTHER_ZONE, 2)]


def test_a_zone_that_refused_is_not_asked_again_before_its_delay():
    """It waits about 5 s after the first refusal for capacity."""
    refusals = (Refusal(NOW - 3, ZONE, Retry.CAPACITY), Refusal(NOW - 1, OTHER_ZONE, Retry.CAPACITY))
    tried = record(accepted=False, refusals=refusals)
    plan = decide(spec(), world(nodes=Present(())), tried)
    assert plan.empty
    assert plan.wake_in == pytest.approx(create_gate(spec(), tried, ZONE) - NOW)


def test_a_permission_problem_is_not_asked_again():
    """Permanent refusals stop the creates at once."""
    refused = record(
        accepted=False, refusals=(Refusal(NOW - 1000, ZONE, Retry.PERMANENT, "denied", code="TPU-203"),)
    )
    assert decide(spec(), world(nodes=Present(())), refused).empty


@pytest.mark.parametrize("state", [VmState.TERMINATED, VmState.SUSPENDED])
def test_a_stopped_vm_is_started(state):
    """This is what `watch -n 600 gcloud compute instances start` did by hand."""
    plan = decide(spec(), world(vm=Present(vm(state=state))), record())
    assert [(c.kind, c.verb) for c in plan.changes] == [(Kind.VM, Verb.START)]


@pytest.mark.parametrize(
    "state", [VmState.STOPPING, VmState.STAGING, VmState.PROVISIONING, VmState.REPAIRING]
)
def test_a_vm_on_its_way_is_waited_for(state):
    """A start is refused while the VM is still stopping, so it is not asked for."""
    plan = decide(spec(), world(vm=Present(vm(state=state))), record())
    assert plan.empty
    assert plan.waiting


def test_a_deployment_without_vm_asks_for_none():
    """`vm: none` is allowed."""
    assert decide(spec(vm="none"), world(vm=Absent()), record()).empty


def test_a_bucket_that_held_data_is_not_created_again():
    """A bucket deleted by hand is said, not papered over with an empty one."""
    plan = decide(spec(), world(bucket=Absent()), record())
    assert all(c.kind is not Kind.BUCKET for c in plan.changes)
    assert any("bucket" in text for text in plan.waiting)


def test_a_done_job_leaves_no_machine_billed():
    """The TPU is deleted and the VM stopped as soon as every worker is done."""
    plan = decide(spec(), world(heartbeats=Present((heartbeat(phase=Phase.DONE),))), record())
    assert plan.outcome is Outcome.DONE
    assert [(c.kind, c.verb) for c in plan.changes] == [(Kind.NODE, Verb.DELETE), (Kind.VM, Verb.STOP)]


def test_a_slice_is_done_only_when_every_worker_is():
    """One finished worker of two is not the end."""
    half = (heartbeat(0, workers=2, phase=Phase.DONE), heartbeat(1, workers=2))
    slice_of_two = node(workers=(Worker(0, "a"), Worker(1, "b")))
    plan = decide(spec(), world(nodes=Present((slice_of_two,)), heartbeats=Present(half)), record())
    assert plan.outcome is None


def test_a_missing_report_of_one_worker_is_not_the_end_either():
    """Only worker 0 of two has reported: nobody may conclude that all are done."""
    plan = decide(spec(), world(heartbeats=Present((heartbeat(0, workers=2, phase=Phase.DONE),))), record())
    assert plan.outcome is None


def test_a_job_that_gave_up_ends_the_deployment_with_its_reason():
    """The agent counts failures without progress; its verdict is final."""
    failed = heartbeat(phase=Phase.FAILED, message="5 failures without progress, last exit 1")
    plan = decide(spec(), world(heartbeats=Present((failed,))), record())
    assert plan.outcome is Outcome.FAILED
    assert "last exit 1" in plan.message


def test_the_budget_stops_spending_and_keeps_the_bucket():
    """The hard stop deletes the TPU and never the data."""
    limited = spec(watch=WatchSpec(budget_usd=10.0))
    plan = decide(limited, world(), record(), usd_so_far=10.0)
    assert plan.outcome is Outcome.LIMIT_REACHED
    assert {c.kind for c in plan.changes} == {Kind.NODE, Kind.VM}


def test_the_time_to_live_ends_the_deployment():
    """A forgotten deployment ends by itself."""
    short = spec(watch=WatchSpec(ttl=Duration(1000)))
    assert decide(short, world(), record()).outcome is Outcome.LIMIT_REACHED


def test_new_code_is_pushed_to_a_running_job():
    """Another bundle than the machines have means a push."""
    plan = decide(spec(), world(), record(bundle="c", uploaded="c:a"))
    assert [(c.kind, c.verb) for c in plan.changes] == [(Kind.JOB, Verb.UPDATE)]


def test_new_settings_reach_a_job_that_runs_the_same_code():
    """A changed command or variable needs a restart although the bundle is the same."""
    plan = decide(spec(), world(), record(settings_due=True))
    assert [(c.kind, c.verb) for c in plan.changes] == [(Kind.JOB, Verb.UPDATE)]


def test_code_goes_to_the_bucket_before_it_goes_to_machines():
    """A machine that is replaced finds its code without us."""
    plan = decide(spec(), world(), record(bundle="c"))
    assert Kind.BUNDLE in {c.kind for c in plan.changes}


@pytest.mark.parametrize(
    ("uploaded", "said"),
    [
        ("", "the bucket does not have it yet"),
        ("b:a", "the code that was uploaded last is b"),
        ("c:b", "it was uploaded with the agent of another version of tpuctl"),
    ],
)
def test_the_upload_of_code_says_no_more_than_the_record_knows(uploaded, said):
    """Code of an earlier push may still be in the bucket: the record names the last upload."""
    (change,) = (
        one
        for one in decide(spec(), world(), record(bundle="c", uploaded=uploaded)).changes
        if one.kind is Kind.BUNDLE
    )
    assert change.message == said


def test_a_silent_worker_is_looked_after_over_ssh():
    """
    Four missed heartbeats are too many; the job is started there, if it does not run.

    Only after a quarter of an hour is it started again: it may train on without reaching the bucket.
    """
    for age, verb in ((500, Verb.CREATE), (1000, Verb.UPDATE)):
        silent = replace(heartbeat(), updated=NOW - age)
        plan = decide(spec(), world(heartbeats=Present((silent,))), record())
        assert [(c.kind, c.verb) for c in plan.changes] == [(Kind.JOB, verb)]
        assert "silent" in plan.changes[0].message


def test_a_node_without_workers_is_not_a_node_with_all_workers_ready():
    """An empty worker list means that nobody knows them yet."""
    bare = world(nodes=Present((node(workers=()),)), heartbeats=Present(()))
    plan = decide(spec(), bare, record())
    assert plan.empty
    assert "job: the TPU is READY but shows no workers yet" in plan.waiting


def test_a_job_on_the_vm_gets_the_address_of_each_new_tpu():
    """In the style of 2020 the VM's job needs the TPU's address, so a new incarnation means a new start."""
    on_vm = spec(job=JobSpec(command="x", run_on="vm"))
    plan = decide(on_vm, world(heartbeats=Present(())), record(pushed="0:b"))
    assert [(c.kind, c.verb) for c in plan.changes] == [(Kind.JOB, Verb.CREATE)]
    assert decide(on_vm, world(), record(pushed="1:b")).empty


def test_a_bucket_whose_creation_may_be_unfinished_is_finished():
    """A killed create may have left out the grant; creating again is harmless and completes it."""
    plan = decide(spec(), world(), record(bucket_ready=False))
    assert [(c.kind, c.verb) for c in plan.changes] == [(Kind.BUCKET, Verb.CREATE)]


def test_an_adopted_bucket_is_never_changed():
    """The user gave it; granting is theirs too."""
    adopted = spec(bucket=BucketSpec(name="b", adopt=True))
    assert decide(adopted, world(), record(bucket_ready=False)).empty


def test_a_bucket_in_another_region_is_refused_before_anything_is_made():
    """Same region is a rule: a wrong one costs thousands in egress."""
    far = world(bucket=Present(Bucket("b", "europe-west4")), nodes=Present(()), vm=Absent())
    plan = decide(spec(), far, Record())
    assert plan.outcome is Outcome.REFUSED
    assert plan.empty


@pytest.mark.parametrize("bucket", [Absent(), Unknown("429")])
def test_no_tpu_is_requested_while_the_bucket_was_missed_and_not_observed_again(bucket):
    """Somebody may have taken the deployment down; a look that fails does not bring the bucket back."""
    missed = record(
        accepted=False, requested_at=0.0, bucket_observed=True, first_seen={"bucket:absent": NOW - 60}
    )
    assert decide(spec(vm="none"), world(bucket=bucket, nodes=Present(())), missed).changes == ()


def test_a_create_that_a_kill_has_cut_off_is_not_the_first_one():
    """The number was recorded before the call; TPU #1 existed, so there is none now."""
    span = Span(Kind.NODE, "demo-tpu-g1", ZONE, NOW - 900, NOW - 9)
    cut = record(incarnation=2, accepted=False, requested_at=NOW - 5, spans=(span,))
    gone = world(nodes=Present(()), heartbeats=Present(()))
    assert [c.message for c in decide(spec(), gone, cut).changes if c.kind is Kind.NODE] == [
        "there is none now"
    ]
    first = record(accepted=False, requested_at=NOW - 5)
    assert [c.message for c in decide(spec(), gone, first).changes if c.kind is Kind.NODE] == [
        "there is none yet"
    ]


QUOTA = Refusal(NOW - 100, ZONE, Retry.QUOTA, beside=True)
"""Our own TPU #1 held the quota when #2 was requested; it is gone since."""


ONE_ZONE = spec(tpu=replace(spec().tpu, zones=(ZONE,)))


def after_quota(**more):
    """Return the record after that refusal."""
    asked = {
        "incarnation": 2,
        "highest": 2,
        "accepted": False,
        "requested_at": NOW - 100,
        "refusals": (QUOTA,),
    }
    return record(**{**asked, "first_seen": {"node:2:absent": NOW - 90}, **more})


@pytest.mark.parametrize(
    ("number", "zones", "more"),
    [
        (2, (ZONE,), {}),
        (3, (OTHER_ZONE,), {}),
        (3, (ZONE,), {"refusals": (replace(QUOTA, beside=False),)}),
        (3, (ZONE,), {"refusals": (QUOTA, Refusal(NOW - 90, ZONE, Retry.CAPACITY))}),
        (3, (ZONE,), {"accepted": True}),
        (3, (ZONE,), {"requested_at": 0.0}),
        (3, (ZONE,), {"type": "v5litepod-4"}),
    ],
    ids=[
        "same zone",
        "other zone",
        "quota of others",
        "stockout since",
        "it was made",
        "its operation failed",
        "type",
    ],
)
def test_only_a_request_that_our_own_quota_refused_is_made_again_under_its_number(number, zones, more):
    """In one zone a name is one TPU at most; in two zones one number could become two."""
    wants = replace(ONE_ZONE, tpu=replace(ONE_ZONE.tpu, zones=zones))
    plan = decide(wants, world(nodes=Present(()), observed_at=NOW + 900), after_quota(**more))
    assert steps(plan) == [(Kind.NODE, Verb.CREATE, number)]


def test_an_absence_before_a_repeated_request_says_nothing_about_its_tpu():
    """The list is older than the TPU: it counts as gone only after two complete lists since the new request."""
    asked = after_quota()
    (change,) = decide(ONE_ZONE, world(nodes=Present(())), asked).changes
    learned = accepted(intended(asked, [change], queued=False, now=NOW), change.incarnation)
    late = world(nodes=Present(()), observed_at=NOW + 5)
    assert decide(ONE_ZONE, late, update_record(learned, late)).changes == ()


def test_a_request_that_is_made_again_is_of_the_kind_that_it_is_now():
    """It was on demand, and is spot now: the bill and the forecast read that from the record."""
    asked = after_quota()
    asked = replace(asked, deadline=replace(asked.deadline, on_demand=(2,), flex_start=(2,)))
    (change,) = decide(ONE_ZONE, world(nodes=Present(())), asked).changes
    again = intended(asked, [change], queued=False, now=NOW)
    assert (again.deadline.on_demand, again.deadline.flex_start) == ((), ())
