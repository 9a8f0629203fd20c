"""TPUs that never report are replaced; after an hour of nothing else the deployment ends."""

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.bucket_grants import GRANT_SETTLES
from orchestrator.domain.observation import Present, Unknown
from orchestrator.domain.plan import Kind, Outcome, Verb
from orchestrator.domain.record import Candidate, Span
from orchestrator.domain.spec import JobSpec
from orchestrator.planning.decide import decide
from orchestrator.planning.tpu.never_reported import (
    SILENT_TIME,
    SILENT_TIMEOUT,
    SILENT_TPUS,
    START_TIMEOUT,
    with_boot_heartbeat,
    with_silent_tpu,
)
from orchestrator.planning.update_record import update_record
from tests.kit.records import changed, record_of
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, heartbeat, node, spec, world

READY = "node:1:ready"


def known(waited, **fields):
    """Return a record whose first TPU has been READY for so many seconds."""
    base = record_of(
        incarnation=1, zone=ZONE, accepted=True, requested_at=NOW - waited - 200, zones_used=(ZONE,),
        bucket_observed=True, bucket_ready=True, vm_accepted=True, started_at=NOW - waited - 300,
        first_seen={READY: NOW - waited},
    )  # fmt: skip
    return changed(base, **fields)


def silent(**overrides):
    """Return a world in which a READY TPU has not reported."""
    return world(heartbeats=Present(()), **overrides)


def deletions(plan):
    """Return the deletions of TPUs in a plan."""
    return [c for c in plan.changes if (c.kind, c.verb) == (Kind.NODE, Verb.DELETE)]


@pytest.mark.parametrize(("waited", "replaced"), [(START_TIMEOUT - 1, False), (START_TIMEOUT, True)])
def test_a_tpu_that_never_reports_is_replaced_in_time(waited, replaced):
    """Twenty minutes after it was READY, and not sooner."""
    plan = decide(spec(), silent(), known(waited))
    assert bool(deletions(plan)) is replaced
    assert any(c.verb is Verb.CREATE and c.kind is Kind.NODE for c in plan.changes) is replaced


SOON = known(SILENT_TIMEOUT, heartbeat_at_boot=(1,))
FIRST = heartbeat(phase=Phase.BOOT, script=True, bundle="", updated=NOW - SILENT_TIMEOUT)
NEVER_REPORTED = tuple((n, NOW - 100.0) for n in range(2, 2 + SILENT_TPUS))


def spans(zone):
    """Return the bills of the ones that never reported."""
    return tuple(Span(Kind.NODE, f"demo-tpu-g{n}", zone, NOW - 900, NOW - 100) for n, _ in NEVER_REPORTED)


@pytest.mark.parametrize(
    ("record", "observed", "replaced"),
    [
        (SOON, silent(), True),
        (known(SILENT_TIMEOUT - 1, heartbeat_at_boot=(1,)), silent(), False),
        # Its script reports late: an earlier tpuctl gave it to the machine.
        (known(SILENT_TIMEOUT, heartbeat_at_boot=(2,)), silent(), False),
        (SOON, silent(boot_heartbeats=(FIRST,)), False),
        (SOON, world(heartbeats=Unknown("503")), False),
        (SOON, silent(nodes=Present((node(healthy=False, health="TIMEOUT", timed_out=True),))), False),
        (changed(SOON, granted_at=NOW - GRANT_SETTLES + 1), silent(), False),
        (changed(SOON, granted_at=NOW - GRANT_SETTLES), silent(), True),
        (changed(SOON, never_reported=NEVER_REPORTED, spans=spans(ZONE)), silent(), False),
        (changed(SOON, never_reported=NEVER_REPORTED), silent(), False),  # nobody knows where they were
        (changed(SOON, never_reported=NEVER_REPORTED, spans=spans(OTHER_ZONE)), silent(), True),
        (changed(SOON, never_reported=NEVER_REPORTED[1:], spans=spans(ZONE)), silent(), True),
    ],
    ids=[
        "silent", "not yet", "an old script", "it has begun", "unknown", "TIMEOUT", "a new grant",
        "an old grant", "three of this zone",
        "three of nobody knows where", "three of another zone", "two of this zone",
    ],
)  # fmt: skip
def test_a_startup_script_that_does_not_even_begin_is_given_up_after_six_minutes(record, observed, replaced):
    """Its first act is a report; all that may keep a machine from that act is given more time."""
    found = deletions(decide(spec(), observed, record))
    assert bool(found) is replaced
    assert all(change.never_reported for change in found), (
        "it counts as never reported, and its zone is left for a while"
    )


def test_a_startup_script_that_begins_and_never_comes_through_is_given_up_too():
    """After the time of any start; it counts as one that has never reported."""
    (change,) = deletions(
        decide(spec(), silent(boot_heartbeats=(FIRST,)), known(START_TIMEOUT, heartbeat_at_boot=(1,)))
    )
    assert "has begun" in change.message
    assert change.never_reported


def test_a_first_report_does_not_wipe_the_slate():
    """Scripts that all begin, and of which none comes through, would be paid for without end."""
    looked = silent(boot_heartbeats=(FIRST,))
    assert (
        update_record(known(60, never_reported=NEVER_REPORTED), looked).silence.never_reported
        == NEVER_REPORTED
    )


def test_the_zone_of_a_tpu_that_never_reported_is_avoided_for_a_while():
    """The next TPU, of the same plan, is asked for elsewhere."""
    (change,) = deletions(decide(spec(), silent(), SOON))
    plan = decide(spec(), silent(), changed(SOON, type="v5litepod-8"))
    (create,) = (c for c in plan.changes if (c.kind, c.verb) == (Kind.NODE, Verb.CREATE))
    assert (change.zone, create.zone) == (ZONE, OTHER_ZONE)


def test_the_record_says_which_scripts_report_first_as_long_as_that_matters():
    """The newest TPU and those that race with it."""
    raced = known(0, incarnation=3, rivals=(Candidate(2, OTHER_ZONE, NOW),), heartbeat_at_boot=(1, 2))
    assert with_boot_heartbeat(raced, 3).silence.heartbeat_at_boot == (2, 3)


def test_reports_that_cannot_be_read_are_no_silence():
    """Unknown is not absent."""
    looked = world(heartbeats=Unknown("the bucket does not answer"))
    assert not deletions(decide(spec(), looked, known(9 * START_TIMEOUT)))


def test_one_worker_that_reports_is_enough():
    """Then its startup script has come through; the others are looked after one by one."""
    looked = world(heartbeats=Present((heartbeat(),)))
    assert not deletions(decide(spec(), looked, known(9 * START_TIMEOUT)))


@pytest.mark.parametrize(("waited", "ends"), [(SILENT_TIME - 1, False), (SILENT_TIME, True)])
def test_a_vm_that_never_reports_holds_no_tpu_for_more_than_an_hour(waited, ends):
    """Another TPU would not help it, so none is asked for; the one that waits goes."""
    wanted = spec(job=JobSpec(command="python train.py", run_on="vm"))
    plan = decide(wanted, silent(), known(waited))
    assert (plan.outcome is Outcome.FAILED, bool(deletions(plan))) == (ends, ends)
    assert not any(c.verb is Verb.CREATE and c.kind is Kind.NODE for c in plan.changes)


def test_an_end_that_has_begun_is_not_taken_back():
    """The TPU is READY no more while it is deleted; another one would wait in vain too."""
    wanted = spec(job=JobSpec(command="python train.py", run_on="vm"))
    ended = decide(wanted, silent(), known(SILENT_TIME))
    going = known(SILENT_TIME, first_seen={}, outcome=ended.outcome, message=ended.message)
    gone = silent(nodes=Present(()))
    assert decide(wanted, gone, going).outcome is Outcome.FAILED
    assert not any(c.verb is Verb.CREATE for c in decide(wanted, gone, going).changes)


def test_a_silent_tpu_counts_once_however_often_its_deletion_is_asked_for():
    """A killed controller asks again."""
    (change,) = deletions(decide(spec(), silent(), known(START_TIMEOUT)))
    once = with_silent_tpu(known(START_TIMEOUT), change, NOW)
    assert once.silence.never_reported == ((1, NOW),)
    assert with_silent_tpu(once, change, NOW + 60) == once


def test_a_tpu_that_was_lost_for_another_reason_does_not_count():
    """A preemption during the boot is the market's doing."""
    lost = silent(nodes=Present((node(state=node().state.PREEMPTED),)))
    (change,) = deletions(decide(spec(), lost, known(START_TIMEOUT)))
    assert with_silent_tpu(known(START_TIMEOUT), change, NOW).silence.never_reported == ()


def test_a_tpu_that_has_worked_and_fell_silent_does_not_count():
    """Its startup script came through; the network to it, or the machine, failed later."""
    lost = known(9 * START_TIMEOUT, ssh_failed_since=NOW - 600, ssh_next_try_at=NOW - 1)
    looked = world(heartbeats=Present((heartbeat(updated=NOW - 900),)))
    (change,) = deletions(decide(spec(), looked, lost))
    assert "out of reach" in change.message
    assert with_silent_tpu(lost, change, NOW).silence.never_reported == ()


@pytest.mark.parametrize(
    ("many", "since", "ends"),
    [
        (SILENT_TPUS, SILENT_TIME, True),
        (SILENT_TPUS - 1, 9 * SILENT_TIME, False),
        (9, SILENT_TIME - 1, False),
    ],
)
def test_the_deployment_ends_after_three_of_them_and_an_hour(many, since, ends):
    """Neither a bad hour with one TPU nor a short outage ends it; both together leave no hope."""
    never_reported = tuple((number, NOW - since) for number in range(1, many + 1))
    plan = decide(spec(), silent(), known(60, never_reported=never_reported))
    assert (plan.outcome is Outcome.FAILED) is ends
    assert ("never reported" in plan.message) is ends
    assert bool(deletions(plan)) is ends


def test_one_report_resets_the_count_of_silent_tpus():
    """What came up once can come up again."""
    spoken = update_record(
        known(60, never_reported=((1, NOW - 9), (2, NOW - 5))), world(heartbeats=Present((heartbeat(),)))
    )
    assert spoken.silence.never_reported == ()
