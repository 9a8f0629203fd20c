"""A TPU in the queue: what node and queued resource are together, and what becomes of them."""

from dataclasses import replace

import pytest

from orchestrator.domain.machines.queued_resource import ENDED, QueuedResource, QueuedState
from orchestrator.domain.observation import NodeState, Present
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.text.units import Duration
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.tpu.queued_tpu import (
    CLOCKS,
    PROVISIONING_TIMEOUT,
    end_text,
    merged,
    state_text,
)
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, node, record, spec, world

S = QueuedState


def request(state, **fields):
    """Return the queued resource of incarnation 1."""
    base = {"nodes": ("demo-tpu-g1",), "labels": {"tpuctl-deployment": "demo"}, "created_at": NOW - 9000}
    return QueuedResource("demo-tpu-g1", ZONE, state, 1, **{**base, **fields})


def looked(queued, nodes=(), was=None, at=NOW):
    """Return what a look learns, and the plan that follows."""
    observed = world(nodes=Present(merged(nodes, queued)), heartbeats=Present(()), observed_at=at)
    learned = update_record(was or record(queued=True), observed)
    return learned, decide(spec(), observed, learned)


@pytest.mark.parametrize(
    ("state", "alone", "beside_ready"),
    [
        (S.CREATING, NodeState.CREATING, NodeState.READY),
        (S.ACCEPTED, NodeState.CREATING, NodeState.READY),
        (S.WAITING_FOR_RESOURCES, NodeState.CREATING, NodeState.READY),
        (S.PROVISIONING, NodeState.CREATING, NodeState.READY),
        (S.ACTIVE, NodeState.UNKNOWN, NodeState.READY),
        (S.SUSPENDING, NodeState.PREEMPTED, NodeState.PREEMPTED),
        (S.SUSPENDED, NodeState.PREEMPTED, NodeState.PREEMPTED),
        (S.FAILED, NodeState.TERMINATED, NodeState.TERMINATED),
        (S.DELETING, NodeState.DELETING, NodeState.DELETING),
        (S.STATE_UNSPECIFIED, NodeState.CREATING, NodeState.READY),
    ],
)
def test_queued_resource_and_node_are_one_tpu(state, alone, beside_ready):
    """In every state there is one TPU, with the state that follows from both."""
    (without,) = merged((), (request(state),))
    (with_node,) = merged((node(),), (request(state),))
    assert (without.state, with_node.state) == (alone, beside_ready)
    assert without.has_machine == (state is S.ACTIVE)
    assert with_node.has_machine


def test_every_state_of_the_service_is_met():
    """The table above leaves no state out."""
    table = test_queued_resource_and_node_are_one_tpu.pytestmark[0].args[1]
    assert {state for state, _, _ in table} == set(QueuedState)


def test_a_node_of_the_same_name_elsewhere_is_another_one():
    """Names are unique in a zone only."""
    assert len(merged((node(zone=OTHER_ZONE),), (request(S.ACTIVE),))) == 2


@pytest.mark.parametrize("state", sorted(ENDED, key=lambda state: state.value))
def test_a_queued_resource_that_has_ended_is_deleted_and_requested_again(state):
    """A dead queued resource holds quota: it goes in the pass that sees it, whether it still has a node or not."""
    for nodes in ((), (node(),)):
        _, plan = looked((request(state, retry=Retry.TRANSIENT),), nodes)
        removed = [(c.name, c.zone) for c in plan.changes if (c.kind, c.verb) == (Kind.NODE, Verb.DELETE)]
        assert removed == [("demo-tpu-g1", ZONE)]


def test_waiting_has_no_deadline_of_ours():
    """After six days in the queue nothing is changed, and nothing has been billed."""
    was, plan = looked((request(S.WAITING_FOR_RESOURCES),))
    for day in range(1, 7):
        was, plan = looked((request(S.WAITING_FOR_RESOURCES),), was=was, at=NOW + day * 86400)
    assert plan.empty
    assert not any(span.kind is Kind.NODE for span in was.spans)
    assert any("in the queue since 2027-01-15 05:30 UTC" in text for text in plan.waiting)


def test_provisioning_has_a_deadline_that_starts_over_after_a_fall_back():
    """One that makes and loses its machines for ever is replaced; one that went back into the queue is not."""
    was, _ = looked((request(S.PROVISIONING),))
    later = NOW + PROVISIONING_TIMEOUT + 1
    back, _ = looked((request(S.WAITING_FOR_RESOURCES),), was=was, at=NOW + 60)
    _, plan = looked((request(S.PROVISIONING),), was=back, at=later)
    assert plan.empty
    _, plan = looked((request(S.PROVISIONING),), was=was, at=later)
    assert [c.verb for c in plan.changes] == [Verb.DELETE, Verb.CREATE]


@pytest.mark.parametrize(
    ("until", "retry", "reported"),
    [
        (0.0, Retry.PERMANENT, Retry.PERMANENT),
        (0.0, None, Retry.UNKNOWN),
        (NOW - 1, Retry.TRANSIENT, Retry.CAPACITY),
        (NOW + CLOCKS / 2, Retry.TRANSIENT, Retry.CAPACITY),
        (NOW + 9000, Retry.TRANSIENT, Retry.TRANSIENT),
    ],
)
def test_a_failed_order_is_one_refusal(until, retry, reported):
    """Its reason decides about the next try; having waited in vain is a lack of capacity. It counts once."""
    failed = request(S.FAILED, until=until, retry=retry, code="TPU-499", message="no")
    was, _ = looked((failed,))
    was, _ = looked((failed,), was=was, at=NOW + 15)
    assert [(r.retry, r.zone, r.kind) for r in was.refusals] == [(reported, ZONE, Kind.NODE)]


def test_people_read_the_state_of_the_place_in_the_queue():
    """CREATING would hide that it waits; a READY TPU is READY, whatever the queue says yet."""
    waiting = request(S.WAITING_FOR_RESOURCES, until=NOW)
    span = "in the queue since 2027-01-15 05:30 UTC, until 2027-01-15 08:00 UTC at most"
    assert state_text(merged((), (waiting,))[0]) == f"WAITING_FOR_RESOURCES ({span})"
    assert state_text(merged((node(),), (request(S.PROVISIONING),))[0]) == "READY"
    assert state_text(merged((), (request(S.SUSPENDED),))[0]) == "SUSPENDED"
    assert state_text(node()) == "READY"


@pytest.mark.parametrize(
    ("changes", "known", "reported"),
    [
        ({"request": "flex-start", "max_run_duration": Duration(7200)}, {},
         "has had its time (2h), after which Google ends a flex-start TPU"),
        ({"request": "flex-start"}, {}, "was ended by Google before its time (7d)"),
        ({}, {"flex_start": (1,)}, "was ended by Google before its time (7d)"),
        ({}, {}, "is PREEMPTED"),
    ],
)  # fmt: skip
def test_what_has_become_of_a_lost_tpu_is_reported_as_what_it_is(changes, known, reported):
    """A flex-start TPU is not preempted; one that goes early has no reason that anybody knows."""
    lost, ran = node(state=NodeState.PREEMPTED), {"node:1:ready": NOW - 7200}
    wanted = spec(tpu=replace(spec().tpu, **changes))
    assert end_text(wanted, record(first_seen=ran, **known), lost, NOW) == reported
    unseen = end_text(wanted, record(first_seen={}, **known), lost, NOW)
    assert unseen.startswith(
        "was ended by Google; a flex-start TPU runs for" if "Google" in reported else reported
    )
