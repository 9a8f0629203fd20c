"""Races: several TPUs are asked for at once, one gets the job, and the others go."""

from dataclasses import replace

import pytest

from orchestrator.domain.observation import (
    Absent,
    Claim,
    NodeState,
    Operation,
    OperationResult,
    Present,
    Unknown,
)
from orchestrator.domain.plan import Change, Kind, Plan, Verb
from orchestrator.domain.record import Candidate, Refusal, Shape, newest_incarnation
from orchestrator.domain.tpu_shape import reshaped, unwanted
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.invariants import broken
from orchestrator.planning.tpu.race import current_candidates, undecided, width, with_request
from orchestrator.planning.update_record import update_record
from orchestrator.planning.whole_plan import plan_from_nothing
from tests.kit.records import changed
from tests.planning.worlds import NOW, node, record, spec, world

ZONES = ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f")
RACE = spec(tpu=replace(spec().tpu, zones=ZONES, strategy="race"))


def racer(number, state=NodeState.CREATING, **more):
    """A TPU of the first round."""
    labels = {"tpuctl-deployment": "demo", "tpuctl-round": "1"}
    return node(number, state=state, zone=ZONES[number - 1], labels=labels, **more)


def running(**more):
    """The record of a race of three that nobody has won yet."""
    rivals = tuple(Candidate(n, ZONES[n - 1], NOW - 60, accepted=True) for n in (2, 3))
    base = {"round": 1, "rivals": rivals, "highest": 3, "requested_at": NOW - 60, "first_seen": {}}
    return record(**{**base, **more})


def observed(*nodes, **more):
    """A world with these TPUs."""
    return world(nodes=Present(nodes), heartbeats=Present(()), **more)


def creates(plan):
    """Return incarnation, zone and round of each create."""
    found = (c for c in plan.changes if c.kind is Kind.NODE and c.verb is Verb.CREATE)
    return [(c.incarnation, c.zone, c.round) for c in found]


def deletes(plan):
    """Return the incarnations that are deleted."""
    return [c.incarnation for c in plan.changes if c.kind is Kind.NODE and c.verb is Verb.DELETE]


def test_the_first_round_asks_in_two_zones_with_a_number_for_each():
    """One more than is needed, as long as nobody has refused."""
    plan = decide(RACE, observed(), record(incarnation=0, zone="", accepted=False))
    assert creates(plan) == [(1, ZONES[0], 1), (2, ZONES[1], 1)]
    assert broken(RACE, plan, observed(), record(incarnation=0, zone="", accepted=False)) is None


def waves(refusals):
    """A record without a TPU after so many refusals in other places."""
    reported = tuple(Refusal(NOW - 500, f"elsewhere-{n}", Retry.CAPACITY) for n in range(refusals))
    return record(incarnation=0, zone="", accepted=False, refusals=reported)


@pytest.mark.parametrize(("refusals", "wide"), [(0, 2), (1, 2), (2, 4), (5, 4), (6, 8), (50, 8)])
def test_a_race_is_twice_as_wide_after_each_wave_that_was_refused_whole(refusals, wide):
    """Two, four, eight: the last refusal of a wave widens the next one."""
    assert width(waves(refusals)) == wide
    many = replace(RACE, tpu=replace(RACE.tpu, zones=tuple(f"us-central1-{c}" for c in "abcdefghijkl")))
    plan = decide(many, observed(), waves(refusals))
    assert len(creates(plan)) == wide
    assert broken(many, plan, observed(), waves(refusals)) is None


def test_the_record_finds_every_candidate_in_whatever_order_they_were_asked_for():
    """The first one leads, the others are its rivals; a later round leaves them behind."""
    for order in ((1, 2, 3), (3, 1, 2)):
        made = record(incarnation=0, zone="", accepted=False)
        for number in order:
            made = with_request(made, ZONES[number - 1], number, 1, NOW)
        assert made.node.incarnation == order[0]
        assert {made.node.incarnation, *(c.incarnation for c in current_candidates(made))} == {1, 2, 3}
        assert newest_incarnation(made) == 3
    assert current_candidates(with_request(made, ZONES[0], 4, 4, NOW)) == ()


def test_nothing_is_deleted_nor_pushed_before_the_winner_is_known():
    """A READY TPU may yet lose: a machine of another one may have been faster."""
    now = observed(racer(1, NodeState.READY), racer(2), racer(3, NodeState.READY))
    plan = decide(RACE, now, update_record(running(), now))
    assert plan.changes == ()
    assert any("race" in text for text in plan.waiting)


@pytest.mark.parametrize("winner", [1, 2, 3])
def test_the_named_winner_stays_and_all_others_go(winner):
    """Whatever else is READY."""
    racers = (racer(1, NodeState.READY), racer(2), racer(3, NodeState.READY))
    now = observed(*racers, claim=Present(Claim(1, winner)))
    made = update_record(running(), now)
    assert (made.node.incarnation, made.node.zone, made.race.claimed) == (winner, ZONES[winner - 1], True)
    assert sorted(deletes(decide(RACE, now, made))) == sorted({1, 2, 3} - {winner})


def test_a_claim_of_another_round_has_no_winner():
    """The object of an old race says nothing about this one."""
    now = observed(racer(1), racer(2), claim=Present(Claim(7, 2)))
    assert undecided(update_record(running(), now))


def test_a_winner_that_was_taken_for_refused_is_not_deleted():
    """Its create seemed to fail, its machine is there and was first."""
    now = observed(racer(1, NodeState.READY), racer(2, NodeState.READY), claim=Present(Claim(1, 2)))
    made = update_record(running(rivals=()), now)
    assert (made.node.incarnation, made.node.zone) == (2, ZONES[1])
    assert deletes(decide(RACE, now, made)) == [1]


def test_the_one_that_is_ready_leads():
    """The controller names the first READY TPU, so that one has to be the newest for the record."""
    made = update_record(running(), observed(racer(1), racer(2), racer(3, NodeState.READY)))
    assert (made.node.incarnation, made.node.zone) == (3, ZONES[2])
    assert {c.incarnation for c in current_candidates(made)} == {1, 2}


def test_a_refused_leader_gives_way_and_a_refused_rival_leaves():
    """The race goes on with who is left."""
    for failed, leader in ((1, 2), (2, 1)):
        order = Operation("op", Kind.NODE, Verb.CREATE, f"demo-tpu-g{failed}", ZONES[failed - 1], failed)
        result = OperationResult(order, done=True, retry=Retry.CAPACITY, message="no more capacity")
        remaining = [racer(n) for n in (1, 2, 3) if n != failed]
        made = update_record(running(operations=(order,)), observed(*remaining, operations=(result,)))
        assert made.node.incarnation == leader
        assert failed not in {c.incarnation for c in made.race.candidates}
        assert [r.zone for r in made.refusals] == [ZONES[failed - 1]]


def test_no_candidate_joins_while_a_tpu_is_being_created():
    """It was not refused with the others, so it will be there first; one that takes too long has rivals again."""
    refused = (Refusal(NOW - 1, ZONES[1], Retry.CAPACITY),)
    known = running(rivals=(), refusals=refused)
    now = observed(racer(1))
    assert creates(decide(RACE, now, known)) == []
    late = replace(now, observed_at=NOW + 250)
    plan = decide(RACE, late, known)
    assert creates(plan) == [(4, ZONES[2], 1)]
    assert broken(RACE, plan, late, known) is None
    assert creates(decide(RACE, replace(late, claim=Unknown("503")), known)) == []
    assert creates(decide(RACE, replace(late, nodes=Present((racer(1), racer(2)))), running())) == []


def test_when_the_claim_cannot_be_read_no_new_round_begins():
    """A rival may be training by now."""
    known = running(rivals=(), accepted=False, requested_at=0.0)
    assert creates(decide(RACE, observed(), known)) != []
    plan = decide(RACE, observed(claim=Unknown("503")), known)
    assert plan.changes == ()
    assert any("who has won" in text for text in plan.waiting)


def test_a_lost_winner_is_replaced_by_a_round_with_larger_numbers():
    """Machines of the last round see that they are old."""
    lost = observed(racer(2, NodeState.PREEMPTED))
    plan = decide(RACE, lost, running(incarnation=2, zone=ZONES[1], claimed=True, rivals=()))
    assert [number for number, _, _ in creates(plan)] == [4, 5]
    assert {race for _, _, race in creates(plan)} == {4}
    assert deletes(plan) == [2]


def test_losers_are_remembered_until_they_are_surely_gone():
    """`down` and the end of a deployment wait for what may still show."""
    won = running(claimed=True)
    gone = {f"node:{n}:absent": NOW - 40 for n in (2, 3)}
    now = observed(racer(1, NodeState.READY))
    assert len(update_record(won, now).race.candidates) == 2
    assert update_record(changed(won, first_seen=gone), now).race.candidates == ()
    assert (
        len(update_record(changed(won, first_seen=gone), replace(now, nodes=Unknown("503"))).race.candidates)
        == 2
    )


def test_a_race_that_the_record_has_lost_is_found_again_by_its_labels():
    """And so its winner can be looked up before anything is deleted."""
    now = observed(racer(1), racer(2), racer(3))
    made = update_record(record(incarnation=0, zone="", accepted=False, requested_at=0.0), now)
    assert (made.race.round, undecided(made)) == (1, True)
    assert {made.node.incarnation, *(c.incarnation for c in current_candidates(made))} == {1, 2, 3}
    assert deletes(decide(RACE, now, made)) == []


def test_a_new_type_replaces_every_candidate():
    """Those of a race that was under way have the old one."""
    made = reshaped(running(shape=Shape("a", "r", True, True)), Shape("b", "r", True, True))
    assert unwanted(made)
    assert unwanted(changed(made, incarnation=3, rivals=()))
    assert not unwanted(changed(made, incarnation=4))


def test_failover_never_asks_twice():
    """And a race in a single zone is none."""
    empty = record(incarnation=0, zone="", accepted=False)
    assert creates(decide(spec(), observed(), empty)) == [(1, ZONES[0], 0)]
    one = spec(tpu=replace(RACE.tpu, zones=ZONES[:1]))
    assert creates(decide(one, observed(), empty)) == [(1, ZONES[0], 0)]


def create(number, zone, race):
    """Return a create."""
    return Change(Kind.NODE, Verb.CREATE, f"demo-tpu-g{number}", "why", zone, number, round=race)


@pytest.mark.parametrize(
    ("changes", "nodes", "more"),
    [
        ([create(4, ZONES[0], 4), create(5, ZONES[1], 0)], (), {}),
        ([create(4, ZONES[0], 4), create(5, ZONES[0], 4)], (), {}),
        ([create(n, f"us-central1-{n}", 4) for n in range(4, 13)], (), {}),
        ([create(4, ZONES[0], 4)], (racer(1),), {}),
        ([create(n, f"us-central1-{n}", 1) for n in range(4, 10)], (racer(1), racer(2), racer(3)), {}),
        ([create(4, ZONES[3], 1)], (racer(1),), {"claimed": True}),
        ([create(3, ZONES[3], 1)], (racer(1),), {}),
        ([create(4, ZONES[3], 0)], (racer(1),), {}),
    ],
)
def test_the_guard_knows_races(changes, nodes, more):
    """Two of no race or of two, two in a zone, nine of one, one beside a winner, a number given before."""
    now = replace(observed(*nodes), claim=Absent())
    assert broken(RACE, Plan(tuple(changes)), now, running(**more)) is not None


def test_the_plan_shows_the_race_and_who_goes():
    """Two are asked for, the first one wins, the other one is deleted."""
    plan = plan_from_nothing(replace(RACE, vm="none"), None, "b", "a")
    assert [number for number, _, _ in creates(plan)] == [1, 2]
    assert deletes(plan) == [2]
