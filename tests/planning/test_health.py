"""Decisions about a node whose state or health is odd: what its workers report counts for more."""

from dataclasses import replace

import pytest

from orchestrator.contract.phase import Phase
from orchestrator.domain.bucket_grants import GRANT_SETTLES
from orchestrator.domain.observation import NodeState, Present, Unknown
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import CONFIRMED_AFTER
from orchestrator.planning.decide import decide
from orchestrator.planning.tpu.node_verdict import UNHEALTHY_TIMEOUT
from tests.planning.worlds import NOW, heartbeat, node, record, spec, world

SILENT = Present((heartbeat(updated=NOW - 200),))
NODE_CREATE_2 = (Kind.NODE, Verb.CREATE, 2)
NODE_DELETE_1 = (Kind.NODE, Verb.DELETE, 1)
SICK = node(healthy=False, health="UNHEALTHY_MAINTENANCE")


def steps(plan):
    """Return what a plan does to nodes."""
    return [(c.kind, c.verb, c.incarnation) for c in plan.changes if c.kind is Kind.NODE]


@pytest.mark.parametrize(
    "odd",
    [
        SICK,
        node(healthy=False, health="TIMEOUT", timed_out=True),
        *(node(state=s) for s in (NodeState.CREATING, NodeState.REPAIRING, NodeState.UNKNOWN)),
    ],
    ids=lambda one: f"{one.state.name} {one.health}",
)
def test_a_node_whose_workers_report_is_not_replaced_whatever_the_api_says(odd):
    """A fresh heartbeat is evidence of life; state and health are hearsay, for however long."""
    key = odd.state.name.lower()
    long = record(first_seen={"node:1:unhealthy": NOW - 7200, f"node:1:{key}": NOW - 7200})
    assert decide(spec(), world(nodes=Present((odd,))), long).empty


@pytest.mark.parametrize(
    ("change", "known", "lost"),
    [
        ({}, {}, True),
        ({"boot_heartbeats": (heartbeat(phase=Phase.BOOT, script=True, updated=NOW - 300),)}, {}, False),
        ({}, {"granted_at": NOW - GRANT_SETTLES + 1}, False),
    ],
)
def test_silence_is_no_witness_while_a_boot_may_be_why(change, known, lost):
    """SSH may be closed by a firewall; a startup script that works, or a role that is new, explains the silence."""
    tried = record(ssh_failed_since=NOW - 400, ssh_next_try_at=NOW, **known)
    silent = world(heartbeats=Present(()), **change)
    assert (NODE_DELETE_1 in steps(decide(spec(), silent, tried))) is lost


@pytest.mark.parametrize(("age", "replaced"), [(30, False), (200, False), (UNHEALTHY_TIMEOUT + 5, True)])
def test_the_first_report_of_a_startup_script_is_evidence_of_life(age, replaced):
    """A TPU that was born unhealthy and whose script runs has its chance; one that says no more, as others do."""
    first = heartbeat(phase=Phase.BOOT, script=True, bundle="", updated=NOW - age)
    observed = world(nodes=Present((SICK,)), heartbeats=Present(()), boot_heartbeats=(first,))
    plan = decide(spec(), observed, record(first_seen={"node:1:unhealthy": NOW - age}))
    assert (NODE_DELETE_1 in steps(plan)) is replaced


@pytest.mark.parametrize(
    ("heartbeats", "since", "replaced"),
    [
        (SILENT, UNHEALTHY_TIMEOUT - 5, False),
        (SILENT, UNHEALTHY_TIMEOUT + 5, True),
        (Present(()), CONFIRMED_AFTER - 5, False),  # it has never reported: born sick
        (Present(()), CONFIRMED_AFTER + 5, True),
        (Unknown("503"), 7200, False),
    ],
)
def test_a_silent_unhealthy_node_is_replaced_after_a_while(heartbeats, since, replaced):
    """At once if it has never reported, after minutes if it has, and never on an answer that did not come."""
    sick = world(nodes=Present((SICK,)), heartbeats=heartbeats)
    plan = decide(spec(), sick, record(first_seen={"node:1:unhealthy": NOW - since}))
    assert [s for s in steps(plan) if s in {NODE_DELETE_1, NODE_CREATE_2}] == (
        [NODE_DELETE_1, NODE_CREATE_2] if replaced else []
    )


def test_a_node_of_health_timeout_gets_the_time_of_any_start():
    """TIMEOUT is also what a machine shows that is still warming up."""
    cold = world(nodes=Present((replace(SICK, timed_out=True),)), heartbeats=Present(()))
    first_seen = {"node:1:unhealthy": NOW - 900, "node:1:ready": NOW - 900}
    assert NODE_DELETE_1 not in steps(decide(spec(), cold, record(first_seen=first_seen)))
    late = {"node:1:unhealthy": NOW - 1300, "node:1:ready": NOW - 1300}
    assert NODE_DELETE_1 in steps(decide(spec(), cold, record(first_seen=late)))


def test_after_three_that_never_reported_a_sick_one_gets_the_time_of_any_start():
    """Replacing them by the half minute would only spend the grant."""
    sick = world(nodes=Present((SICK,)), heartbeats=Present(()))
    three = tuple((n, NOW - 100.0) for n in (1, 2, 3))
    often = record(first_seen={"node:1:unhealthy": NOW - 60}, never_reported=three)
    assert NODE_DELETE_1 not in steps(decide(spec(), sick, often))
