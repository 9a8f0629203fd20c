"""
TPUs that never report are replaced; after an hour of nothing else the deployment ends.
"""

from dataclasses import replace

import pytest

from orchestrator.core.decide import decide
from orchestrator.core.history import History
from orchestrator.core.learn import learn
from orchestrator.core.mute import MUTE_TIME, MUTE_TPUS, START_DEADLINE, with_mute
from orchestrator.core.plan import Kind, Outcome, Verb
from orchestrator.core.spec import JobSpec
from orchestrator.core.world import Present, Unknown
from tests.core.worlds import NOW, ZONE, beat, node, spec, world

READY = "node:1:ready"


def known(waited, **fields):
    """Return a record whose first TPU has been READY for so many seconds."""
    base = History(
        incarnation=1, zone=ZONE, accepted=True, requested_at=NOW - waited - 200, zones_used=(ZONE,),
        bucket_seen=True, bucket_ready=True, vm_accepted=True, started_at=NOW - waited - 300,
        sightings={READY: NOW - waited},
    )  # fmt: skip
    return replace(base, **fields)


def silent(**overrides):
    """Return a world in which a READY TPU has not reported."""
    return world(heartbeats=Present(()), **overrides)


def deletions(plan):
    """Return the deletions of TPUs in a plan."""
    return [c for c in plan.changes if (c.kind, c.verb) == (Kind.NODE, Verb.DELETE)]


@pytest.mark.parametrize(("waited", "replaced"), [(START_DEADLINE - 1, False), (START_DEADLINE, True)])
def test_a_tpu_that_never_reports_is_replaced_in_time(waited, replaced):
    """Twenty minutes after it was READY, and not sooner."""
    plan = decide(spec(), silent(), known(waited))
    assert bool(deletions(plan)) is replaced
    assert any(c.verb is Verb.CREATE and c.kind is Kind.NODE for c in plan.changes) is replaced


def test_reports_that_cannot_be_read_are_no_silence():
    """Unknown is not absent."""
    looked = world(heartbeats=Unknown("the bucket does not answer"))
    assert not deletions(decide(spec(), looked, known(9 * START_DEADLINE)))


def test_one_worker_that_reports_is_enough():
    """Then its startup script has come through; the others are looked after one by one."""
    looked = world(heartbeats=Present((beat(),)))
    assert not deletions(decide(spec(), looked, known(9 * START_DEADLINE)))


@pytest.mark.parametrize(("waited", "ends"), [(MUTE_TIME - 1, False), (MUTE_TIME, True)])
def test_a_vm_that_never_reports_holds_no_tpu_for_more_than_an_hour(waited, ends):
    """Another TPU would not help it, so none is asked for; the one that waits goes."""
    wanted = spec(job=JobSpec(command="python train.py", run_on="vm"))
    plan = decide(wanted, silent(), known(waited))
    assert (plan.outcome is Outcome.FAILED, bool(deletions(plan))) == (ends, ends)
    assert not any(c.verb is Verb.CREATE and c.kind is Kind.NODE for c in plan.changes)


def test_an_end_that_has_begun_is_not_taken_back():
    """The TPU is READY no more while it is deleted; another one would wait in vain too."""
    wanted = spec(job=JobSpec(command="python train.py", run_on="vm"))
    ended = decide(wanted, silent(), known(MUTE_TIME))
    going = known(MUTE_TIME, sightings={}, outcome=ended.outcome.value, reason=ended.reason)
    gone = silent(nodes=Present(()))
    assert decide(wanted, gone, going).outcome is Outcome.FAILED
    assert not any(c.verb is Verb.CREATE for c in decide(wanted, gone, going).changes)


def test_a_silent_tpu_counts_once_however_often_its_deletion_is_asked_for():
    """A killed controller asks again."""
    (change,) = deletions(decide(spec(), silent(), known(START_DEADLINE)))
    once = with_mute(known(START_DEADLINE), change, NOW)
    assert once.mute == ((1, NOW),)
    assert with_mute(once, change, NOW + 60) == once


def test_a_tpu_that_was_lost_for_another_reason_does_not_count():
    """A preemption during the boot is the market's doing."""
    lost = silent(nodes=Present((node(state=node().state.PREEMPTED),)))
    (change,) = deletions(decide(spec(), lost, known(START_DEADLINE)))
    assert with_mute(known(START_DEADLINE), change, NOW).mute == ()


def test_a_tpu_that_has_worked_and_fell_silent_does_not_count():
    """Its startup script came through; the network to it, or the machine, failed later."""
    lost = known(9 * START_DEADLINE, remote_failed_since=NOW - 600, next_remote_at=NOW - 1)
    looked = world(heartbeats=Present((beat(updated=NOW - 900),)))
    (change,) = deletions(decide(spec(), looked, lost))
    assert "out of reach" in change.why
    assert with_mute(lost, change, NOW).mute == ()


@pytest.mark.parametrize(
    ("many", "since", "ends"),
    [(MUTE_TPUS, MUTE_TIME, True), (MUTE_TPUS - 1, 9 * MUTE_TIME, False), (9, MUTE_TIME - 1, False)],
)
def test_the_deployment_ends_after_three_of_them_and_an_hour(many, since, ends):
    """Neither a bad hour with one TPU nor a short outage ends it; both together leave no hope."""
    mute = tuple((number, NOW - since) for number in range(1, many + 1))
    plan = decide(spec(), silent(), known(60, mute=mute))
    assert (plan.outcome is Outcome.FAILED) is ends
    assert ("never reported" in plan.reason) is ends
    assert bool(deletions(plan)) is ends


def test_one_report_wipes_the_slate_clean():
    """What came up once can come up again."""
    spoken = learn(known(60, mute=((1, NOW - 9), (2, NOW - 5))), world(heartbeats=Present((beat(),))))
    assert spoken.mute == ()
