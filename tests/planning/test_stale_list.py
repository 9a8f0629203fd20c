"""A list of TPUs that is older than an earlier one shows nothing."""

from dataclasses import replace

from orchestrator.domain.first_seen import Condition
from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.planning.decide import decide
from orchestrator.planning.update_record import not_older, update_record
from tests.kit.records import changed
from tests.planning.worlds import NOW, node, record, spec, world

EARLIER = node(state=NodeState.DELETING, created_at=NOW - 9000)
WORKS = node(created_at=NOW - 600)


def observed(*looks):
    """Return the record that has learned from *looks*, each of one TPU, or None where it failed."""
    known = record()
    for look in looks:
        known = update_record(known, world(nodes=Present((look,)) if look else Unknown("503")))
    return known


def test_the_earlier_tpu_of_a_name_does_not_take_the_place_of_the_one_that_works():
    """Its list is Unknown, and nothing is replaced."""
    known = observed(WORKS)
    look = not_older(world(nodes=Present((EARLIER,))), known)
    assert isinstance(look.nodes, Unknown)
    assert decide(spec(), look, update_record(known, look), 0.0).changes == ()


def test_a_look_that_fails_forgets_nothing():
    """The next old list is as old."""
    assert isinstance(not_older(world(nodes=Present((EARLIER,))), observed(WORKS, None)).nodes, Unknown)


def test_the_tpu_that_was_observed_may_go_itself():
    """It is the same TPU in another state."""
    going = world(nodes=Present((replace(WORKS, state=NodeState.DELETING),)))
    assert not_older(going, observed(WORKS)) == going


def test_a_tpu_that_is_newer_than_the_one_before_is_observed():
    """A queued resource may make it again under its name."""
    newer = world(nodes=Present((replace(WORKS, created_at=NOW),)))
    assert not_older(newer, observed(WORKS)) == newer


def test_a_tpu_without_a_time_is_observed():
    """The API may leave it out."""
    timeless = world(nodes=Present((replace(WORKS, created_at=0.0),)))
    assert not_older(timeless, observed(WORKS)) == timeless


def test_the_queued_resource_that_made_the_tpu_is_observed_when_the_tpu_is_lost():
    """It was asked for before the machine came."""
    remaining = world(nodes=Present((replace(WORKS, has_machine=False, created_at=NOW - 9000),)))
    assert not_older(remaining, observed(WORKS)) == remaining


def test_the_record_does_not_grow_with_each_tpu():
    """Times of TPUs that nobody asks for any more are forgotten."""
    known = changed(observed(WORKS), incarnation=2)
    later = update_record(known, world(nodes=Present((node(2, created_at=NOW),))))
    assert [observed.id for observed in later.first_seen if observed.state is Condition.MADE] == [2]
