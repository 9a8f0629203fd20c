"""Learning: what a pass adds to the record."""

from dataclasses import replace

import pytest

from orchestrator.domain.first_seen import VM_ABSENT, Condition, of_node
from orchestrator.domain.observation import (
    Absent,
    NodeState,
    Operation,
    OperationResult,
    Present,
    Unknown,
    VmState,
)
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import CONFIRMED_AFTER, Candidate, Record, Refusal
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, ZONE, heartbeat, node, record, spec, vm, world

CREATE = Operation("o1", Kind.NODE, Verb.CREATE, "demo-tpu-g1", ZONE, 1)


def test_a_lost_record_is_rebuilt_from_labels():
    """The newest labelled node says which incarnation we are at."""
    learned = update_record(Record(), world(nodes=Present((node(3), node(7)))))
    assert (learned.node.incarnation, learned.node.accepted, learned.node.zone) == (7, True, ZONE)


def test_an_older_node_does_not_turn_the_incarnation_back():
    """A stale list cannot make us reuse a number."""
    assert update_record(record(incarnation=5), world(nodes=Present((node(2),)))).node.incarnation == 5


def test_a_stockout_in_the_operation_becomes_a_refusal():
    """The create call succeeded; the answer came later, inside the operation."""
    failed = OperationResult(CREATE, done=True, retry=Retry.CAPACITY, message="no more capacity")
    learned = update_record(record(operations=(CREATE,)), world(nodes=Present(()), operations=(failed,)))
    assert learned.operations == ()
    assert not learned.node.accepted
    assert [(r.zone, r.retry) for r in learned.refusals] == [(ZONE, Retry.CAPACITY)]


@pytest.mark.parametrize("verb", [Verb.CREATE, Verb.DELETE])
def test_a_forgotten_operation_is_no_result(verb):
    """The TPU whose create or deletion it was is neither refused nor gone; nor is one in a race."""
    orders = tuple(replace(CREATE, id=f"o{n}", verb=verb, incarnation=n) for n in (1, 2))
    known = record(operations=orders, incarnation=2, rivals=(Candidate(1, ZONE, NOW, accepted=True),))
    forgotten = tuple(OperationResult(order, done=True, forgotten=True) for order in orders)
    learned = update_record(known, world(nodes=Unknown("503"), operations=forgotten))
    assert (learned.node, learned.race, learned.refusals) == (known.node, known.race, ())
    assert learned.operations == ()


def test_a_running_operation_stays_on_the_record():
    """Operations are polled by passes until they are done."""
    running = OperationResult(CREATE, done=False)
    assert update_record(record(operations=(CREATE,)), world(operations=(running,))).operations == (CREATE,)


def test_a_ready_node_forgives_earlier_refusals():
    """Success resets the back-off."""
    refused = record(refusals=(Refusal(NOW, ZONE, Retry.CAPACITY),))
    assert update_record(refused, world()).refusals == ()


def test_an_absence_keeps_the_time_of_its_first_observation():
    """The second witness needs to know when the first one spoke."""
    first = update_record(record(), world(nodes=Present(())))
    assert first.first_seen[of_node(1, Condition.ABSENT)] == NOW
    later = update_record(first, world(nodes=Present(()), observed_at=NOW + 40))
    assert later.first_seen[of_node(1, Condition.ABSENT)] == NOW


def test_an_observation_in_between_clears_the_absence():
    """Absent, present, absent: the count starts again."""
    first = update_record(record(), world(nodes=Present(())))
    observed = update_record(first, world(observed_at=NOW + 10))
    assert of_node(1, Condition.ABSENT) not in observed.first_seen


def test_blindness_neither_confirms_nor_clears_an_absence():
    """Not seeing is no evidence."""
    first = update_record(record(), world(vm=Absent()))
    blind = update_record(first, world(vm=Unknown("timeout"), observed_at=NOW + 100))
    assert blind.first_seen[VM_ABSENT] == NOW


def test_the_bill_starts_when_a_node_is_ready_and_ends_when_it_is_lost():
    """CREATING and PREEMPTED nodes are not counted as running."""
    ready = update_record(record(), world())
    assert [(s.kind, s.until) for s in ready.spans] == [(Kind.NODE, None), (Kind.VM, None)]
    dead = world(nodes=Present((node(state=NodeState.PREEMPTED),)), observed_at=NOW + 60)
    assert [(s.kind, s.until) for s in update_record(ready, dead).spans] == [
        (Kind.NODE, NOW + 60),
        (Kind.VM, None),
    ]


def test_a_node_that_ran_unobserved_is_billed_from_its_creation():
    """Else an hour without a bucket would not count against the budget."""
    unseen = update_record(record(), world(nodes=Present((node(created_at=NOW - 3600),))))
    assert unseen.spans[0].since == NOW - 3600


def observed_creating(times):
    """Return the record after looks at these times at a node that is being created, since an hour."""
    known = record(spans=())
    for at in times:
        nodes = Present((node(state=NodeState.CREATING, created_at=NOW - 3600),))
        known = update_record(known, world(nodes=nodes, observed_at=at))
    return known


def test_a_node_that_was_observed_in_creation_is_billed_from_then_and_not_from_its_creation():
    """Creating costs nothing, however long it takes; each look is recorded to the minute only."""
    waited = observed_creating([NOW + 15 * n for n in range(40)])
    assert [s.kind for s in waited.spans] == [Kind.VM]
    ready = update_record(waited, world(nodes=Present((node(created_at=NOW - 3600),)), observed_at=NOW + 600))
    assert NOW + 525 <= ready.spans[-1].since < NOW + 600
    assert not [observed for observed in ready.first_seen if observed.state is Condition.LAST_CREATING]


def test_a_node_that_got_ready_unobserved_is_billed_from_the_last_sure_observation():
    """Three quarters of an hour of failing lists hid from the budget what the TPU cost in them."""
    blind = observed_creating([NOW])
    for minute in range(1, 45):
        blind = update_record(blind, world(nodes=Unknown("503"), observed_at=NOW + 60 * minute))
    ready = update_record(blind, world(nodes=Present((node(created_at=NOW - 3600),)), observed_at=NOW + 2700))
    assert ready.spans[-1].since == NOW


def test_the_bill_of_a_node_runs_on_while_it_is_unobserved():
    """Unknown may cost money: it is never booked as gone."""
    ready = update_record(record(), world())
    blind = update_record(ready, world(nodes=Unknown("503"), observed_at=NOW + 60))
    assert blind.spans[0].until is None


def test_a_stopped_vm_is_no_longer_billed_as_running():
    """TERMINATED costs its disk only."""
    ready = update_record(record(), world())
    stopped = update_record(ready, world(vm=Present(vm(state=VmState.TERMINATED)), observed_at=NOW + 5))
    assert [s.until for s in stopped.spans if s.kind is Kind.VM] == [NOW + 5]


def test_a_tpu_with_an_unknown_larger_number_is_accepted_when_it_is_observed_twice():
    """An old list shows what a `down` has deleted: our own TPU is not given up for it, and nothing else is done."""
    both = {"nodes": Present((node(1), node(6)))}
    once = update_record(record(), world(**both))
    assert once.node.incarnation == 1
    assert decide(spec(), world(**both), once).changes == ()
    assert update_record(once, world(observed_at=NOW + 29, **both)).node.incarnation == 1
    assert update_record(once, world(observed_at=NOW + 30, **both)).node.incarnation == 6


def test_nothing_is_requested_while_an_unknown_tpu_is_observed():
    """It may be ours, made by a computer whose record was lost, and train."""
    alone = world(nodes=Present((node(6),)))
    refused = record(accepted=False, refusals=(Refusal(NOW - 600, ZONE, Retry.CAPACITY),))
    learned = update_record(refused, alone)
    plan = decide(spec(), alone, learned)
    assert plan.changes == ()
    assert "not in the record" in plan.waiting[0]


def test_an_unknown_tpu_that_is_not_observed_again_is_forgotten():
    """Two complete lists in a row have to show it."""
    once = update_record(record(), world(nodes=Present((node(1), node(6)))))
    gone = update_record(once, world(observed_at=NOW + 20))
    again = update_record(gone, world(observed_at=NOW + 40, nodes=Present((node(1), node(6)))))
    assert again.node.incarnation == 1


@pytest.mark.parametrize(
    ("heartbeats", "accepted"), [((), False), ((heartbeat(),), True), ((heartbeat(incarnation=2),), False)]
)
def test_a_tpu_whose_workers_report_was_made_whatever_its_create_answered(heartbeats, accepted):
    """Its number is used up (wide seed 13): once it has vanished, the next one gets another number."""
    lost = Refusal(NOW - 60, ZONE, Retry.TRANSIENT, "the answer was lost", code="TPU-401")
    asked = record(accepted=False, requested_at=NOW - 900, refusals=(lost,))
    gone = world(nodes=Present(()), heartbeats=Present(heartbeats))
    first = update_record(asked, gone)
    assert first.node.accepted is accepted
    later = replace(gone, observed_at=NOW + CONFIRMED_AFTER)
    made = [c for c in decide(spec(), later, update_record(first, later)).changes if c.kind is Kind.NODE]
    assert [c.incarnation for c in made] == [2 if accepted else 1]
    now = [c for c in decide(spec(), gone, first).changes if c.kind is Kind.NODE]
    assert [c.incarnation for c in now] == ([] if accepted else [1]), "one list alone proves no absence"


def test_reports_of_a_deleted_tpu_make_it_no_existing_one():
    """What is surely gone stays gone; its last heartbeat lies in the bucket."""
    gone = record(accepted=False, requested_at=0.0)
    assert not update_record(gone, world(nodes=Present(()), heartbeats=Present((heartbeat(),)))).node.accepted
