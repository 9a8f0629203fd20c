"""The next TPU is asked for while the one before it still works: at its notice, and when spot is back."""

from dataclasses import replace

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.contract.preemption_notice import REPORT_COUNTS
from orchestrator.domain.observation import Absent, Claim, NodeState, Present, Unknown
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import Candidate, Refusal, has_successors, race_to_win
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.intended_record import intended
from orchestrator.planning.invariants import broken
from orchestrator.planning.tpu.next_zone import hopeless
from orchestrator.planning.tpu.preemption import still_saving
from orchestrator.planning.tpu.race import current_candidates, undecided
from orchestrator.planning.update_record import update_record
from orchestrator.planning.whole_plan import whole_plan
from tests.kit.records import changed
from tests.planning.test_on_demand import HOUR, KNOWN, begun, due
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, heartbeat, node, record, spec, world

WITH_NOTICE = heartbeat(phase=Phase.STOPPING, notice=True, preempted=True)
AT_REST = heartbeat(phase=Phase.STOPPED, notice=True, preempted=True)
WORKS = heartbeat(step=5, committed_step=5, timings={"first_step": NOW - HOUR})
LABELS = {"tpuctl-deployment": "demo", "tpuctl-round": "2"}
FIRST = node(labels={"tpuctl-deployment": "demo"})


def second(state=NodeState.CREATING, **more):
    """The TPU that was asked for beside the first one."""
    return node(2, state=state, zone=OTHER_ZONE, labels=LABELS, **more)


def observed(*nodes, report=WITH_NOTICE, **more):
    """A world with these TPUs, and a report of the first one."""
    return world(nodes=Present(nodes), heartbeats=Present((report,)), **{"claim": Absent(), **more})


def asked(**more):
    """The record of a TPU whose successor was asked for half a minute ago."""
    rivals = (Candidate(2, OTHER_ZONE, NOW - 30, accepted=True),)
    return record(**{"round": 2, "rivals": rivals, "highest": 2, **more})


def nodes_of(plan):
    """Return what a plan makes and deletes of TPUs."""
    mine = [c for c in plan.changes if c.kind is Kind.NODE]
    made = [(c.incarnation, c.zone, c.round, c.beside) for c in mine if c.verb is Verb.CREATE]
    return made, [c.incarnation for c in mine if c.verb is Verb.DELETE]


def test_at_the_notice_the_next_one_is_asked_for_and_the_old_one_saves_on():
    """In a race of its own, so that it begins only when it was named; not in the zone that takes its TPU back."""
    now = observed(FIRST)
    plan = decide(spec(), now, record())
    assert nodes_of(plan) == ([(2, OTHER_ZONE, 2, True)], [])
    # Named, since an event says it after the name of the next one.
    assert [c.message for c in plan.changes if c.beside] == ["demo-tpu-g1 is being preempted and still saves"]
    assert broken(spec(), plan, now, record()) is None
    recorded = intended(record(), plan.changes, queued=False, now=NOW)
    assert (recorded.node.incarnation, recorded.race.round) == (1, 2)
    assert has_successors(recorded)
    assert not undecided(recorded)
    assert [race_to_win(recorded, number) for number in (1, 2)] == [0, 2]


@pytest.mark.parametrize(
    "wants",
    [
        spec(tpu=replace(spec().tpu, zones=(ZONE,))),
        spec(tpu=replace(spec().tpu, request="queued")),
        spec(tpu=replace(spec().tpu, disks=("data:read-write",))),
        spec(job=replace(spec().job, run_on="vm")),
    ],
)
def test_where_two_cannot_be_there_the_old_one_goes_first(wants):
    """One zone that is taking it back, a queue, a disk that the job writes to, a job that runs elsewhere."""
    assert nodes_of(decide(wants, observed(FIRST), record()))[0] == []


def test_a_notice_that_may_be_of_a_reboot_asks_for_nothing():
    """The machine comes back, and trains on."""
    reboots = heartbeat(phase=Phase.STOPPING, notice=True)
    assert nodes_of(decide(spec(), observed(FIRST, report=reboots), record())) == ([], [])


def test_a_race_has_as_many_successors_as_any_other_race():
    """Two at first; all in one round."""
    zones = (ZONE, OTHER_ZONE, "us-central1-c")
    wants = spec(tpu=replace(spec().tpu, zones=zones, strategy="race"))
    made, _ = nodes_of(plan := decide(wants, observed(FIRST), record()))
    assert made == [(2, OTHER_ZONE, 2, True), (3, "us-central1-c", 2, True)]
    assert broken(wants, plan, observed(FIRST), record()) is None


def test_nothing_more_is_asked_for_while_a_successor_is_being_made():
    """Also by a process that comes later, and before any list shows it."""
    for shown in ((FIRST, second()), (FIRST,)):
        plan = decide(spec(), observed(*shown), update_record(asked(), observed(*shown)))
        assert nodes_of(plan) == ([], [])
        assert any("gets the job when it is READY" in text for text in plan.waiting)


def test_the_first_one_goes_when_the_other_is_named():
    """Not before: READY alone is no winner."""
    both = (FIRST, second(NodeState.READY))
    assert nodes_of(decide(spec(), observed(*both), update_record(asked(), observed(*both)))) == ([], [])
    named = observed(*both, claim=Present(Claim(2, 2)))
    made = update_record(asked(), named)
    assert (made.node.incarnation, made.race.claimed) == (2, True)
    assert nodes_of(decide(spec(), named, made)) == ([], [1])


def test_a_tpu_that_has_saved_goes_at_once_and_nothing_is_requested_twice():
    """Its successor takes its place in the record in the look after that, when the preemption is counted."""
    rest = observed(FIRST, second(), report=AT_REST)
    made = update_record(asked(), rest)
    assert made.node.incarnation == 1
    plan = decide(spec(), rest, made)
    assert nodes_of(plan) == ([], [1])
    later = observed(replace(FIRST, state=NodeState.DELETING), second(), report=AT_REST)
    made = update_record(intended(made, plan.changes, queued=False, now=NOW), later)
    assert (made.node.incarnation, undecided(made)) == (2, True)
    assert nodes_of(decide(spec(), later, made)) == ([], [])


def test_a_tpu_that_is_lost_before_it_has_saved_gets_a_successor_too():
    """The observation that shows it lost reports the preemption; the next one has the successor."""
    lost = observed(replace(FIRST, state=NodeState.PREEMPTED), second())
    made = update_record(asked(), lost)
    assert made.node.incarnation == 1
    assert nodes_of(decide(spec(), lost, made)) == ([], [1])
    assert update_record(made, lost).node.incarnation == 2


def test_a_tpu_that_is_missing_from_one_list_gets_no_successor():
    """Unknown is not absent, and one list is no evidence."""
    hidden = observed(second())
    assert update_record(asked(), hidden).node.incarnation == 1
    unsure = replace(hidden, nodes=Unknown("503"))
    assert update_record(asked(), unsure).node.incarnation == 1
    gone = asked(first_seen={"node:1:absent": NOW - 31})
    assert update_record(gone, hidden).node.incarnation == 2


def test_a_refused_successor_is_requested_again_after_its_pause():
    """The TPU that works forgives nothing that was refused beside it, and ends nothing either."""
    refused = (Refusal(NOW - 1, OTHER_ZONE, Retry.PERMANENT),)
    known = update_record(asked(rivals=(), refusals=refused), observed(FIRST))
    assert len(known.refusals) == 1
    assert hopeless(known) is None
    assert nodes_of(decide(spec(), observed(FIRST), known)) == ([], [])
    again = replace(observed(FIRST, report=replace(WITH_NOTICE, updated=NOW + 100)), observed_at=NOW + 100)
    assert nodes_of(decide(spec(), again, known))[0] == [(3, OTHER_ZONE, 3, True)]


def test_a_successor_that_was_never_made_is_forgotten():
    """A process was killed between its intent and the call: the TPU that works waits for nobody."""
    known = asked(first_seen={"node:1:ready": NOW - 900, "node:2:absent": NOW - 31})
    assert current_candidates(update_record(known, observed(FIRST))) == ()


def test_a_successor_that_never_comes_makes_room_for_another():
    """Half an hour after it was asked for."""
    late = (Candidate(2, OTHER_ZONE, NOW - 1801, accepted=True),)
    assert nodes_of(decide(spec(), observed(FIRST, second()), asked(rivals=late)))[1] == [2]


def test_a_tpu_on_demand_works_until_spot_is_there():
    """The hours of a deadline are the dearest: none is lost between two TPUs."""
    begun_on_demand = begun(1, on_demand=(1,))
    now = observed(FIRST, report=WORKS)
    plan = decide(due(), now, begun_on_demand)
    assert nodes_of(plan) == ([(2, ZONE, 2, True)], [])
    assert not plan.changes[0].on_demand
    assert broken(due(), plan, now, begun_on_demand) is None


def test_near_a_deadline_a_tpu_gets_its_successor_on_demand_once_it_is_lost():
    """Only spot is asked for beside another one: on demand is always to be had."""
    assert nodes_of(decide(due(), observed(FIRST), begun(9.9))) == ([], [])
    assert nodes_of(decide(due(), observed(FIRST), begun(1)))[0] == [(2, OTHER_ZONE, 2, True)]


@pytest.mark.parametrize(
    ("change", "report", "was"),
    [
        ({}, heartbeat(), record()),
        ({}, heartbeat(phase=Phase.STOPPING, notice=True), record()),
        ({"beside": False}, WITH_NOTICE, record()),
        ({"round": 0}, WITH_NOTICE, record()),
        ({"on_demand": True}, WITH_NOTICE, record()),
        ({}, WITH_NOTICE, record(round=1, rivals=())),
        ({}, WITH_NOTICE, record(incarnation=3)),
    ],
)
def test_the_guard_lets_nothing_else_be_made_beside_a_tpu(change, report, was):
    """No notice, a reboot, unmarked, in no race, on demand, beside a race that is open, beside one of the past."""
    now = observed(FIRST, report=report)
    (made,) = decide(spec(), observed(FIRST), record()).changes
    plan = replace(decide(spec(), observed(FIRST), record()), changes=(replace(made, **change),))
    assert "one TPU, never two" in broken(spec(), plan, now, was).text


def test_a_plan_shows_who_takes_over():
    """The next one is made, then the old one goes."""
    begun_on_demand = begun(1, on_demand=(1,), progress=KNOWN)
    plan = whole_plan(due(), None, observed(FIRST, report=WORKS), changed(begun_on_demand, uploaded="b:a"))
    assert nodes_of(plan) == ([(2, ZONE, 2, True)], [1])


@pytest.mark.parametrize(
    ("report", "saves"),
    [
        (WITH_NOTICE, True),
        (replace(WITH_NOTICE, phase=Phase.RUN), True),
        (AT_REST, False),
        (replace(WITH_NOTICE, preempted=False), False),
        (replace(WITH_NOTICE, updated=NOW - REPORT_COUNTS), False),
    ],
)
def test_who_still_saves_has_said_so_a_moment_ago(report, saves):
    """A machine that was killed in the middle says nothing any more, and is not waited for."""
    assert still_saving(observed(FIRST, second(), report=report), FIRST) is saves
