"""Where and when to ask again, and when to stop asking."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.machines.capacity import FULL_FOR, after_full, holds_one, merged, zone_history
from orchestrator.domain.observation import NodeState, Present
from orchestrator.domain.plan import Kind, Verb
from orchestrator.domain.record import Refusal
from orchestrator.errors import Retry
from orchestrator.planning.decide import decide
from orchestrator.planning.tpu.next_zone import (
    BACKOFF,
    MAX_GOING,
    MAX_PAUSE,
    QUOTA_TRIES,
    create_gate,
    hopeless,
    next_zone,
)
from orchestrator.planning.tpu.on_demand import of_mode
from orchestrator.planning.update_record import update_record
from tests.planning.worlds import NOW, OTHER_ZONE, ZONE, node, record, spec, world

TYPE = spec().tpu.type
CAPACITY = [Refusal(NOW, ZONE, Retry.CAPACITY)]


def refused(*refusals):
    """Return a record with these refusals."""
    return record(refusals=tuple(refusals))


@pytest.mark.parametrize("retry", Retry)
def test_pauses_double_from_the_first_delay_up_to_their_cap(retry):
    """Each class of refusal has its own pauses; jitter makes a pause up to half a delay shorter or longer."""
    gates = [create_gate(spec(), refused(*[Refusal(NOW, ZONE, retry)] * n), ZONE) - NOW for n in range(1, 14)]
    delays = [min(BACKOFF[retry].first * 2**n, BACKOFF[retry].longest) for n in range(13)]
    assert all(0.5 <= gate / delay <= 1.5 for gate, delay in zip(gates, delays, strict=True))
    # One refusal at one time has one fraction, so what is left is the doubling.
    assert [gate / gates[0] for gate in gates] == pytest.approx([delay / delays[0] for delay in delays])


def test_deployments_refused_together_ask_again_apart():
    """A stockout hits all at once; their next asks spread over a whole delay, evenly, and around the same mean."""
    refusals = refused(*CAPACITY * 9)
    delay = BACKOFF[Retry.CAPACITY].longest
    pauses = sorted(create_gate(spec(name=f"run-{n}"), refusals, ZONE) - NOW for n in range(200))
    assert pauses[0] < 0.55 * delay
    assert pauses[-1] > 1.45 * delay
    assert max(b - a for a, b in itertools.pairwise(pauses)) < 0.05 * delay
    assert sum(pauses) / len(pauses) == pytest.approx(delay, rel=0.05)


def test_a_deployment_waits_for_one_moment_in_each_pass_and_draws_another_after_a_refusal():
    """A controller that was started again finds the gate where it was; two asks in a row are not in step."""
    first, later = CAPACITY * 9, [*CAPACITY * 9, Refusal(NOW + 90, ZONE, Retry.CAPACITY)]
    gate = create_gate(spec(), refused(*first), ZONE)
    assert gate == create_gate(spec(), refused(*first), ZONE)
    assert create_gate(spec(), refused(*later), ZONE) - 90 != gate


def test_a_refusal_holds_back_only_its_own_kind_and_zone():
    """A VM that cannot be had does not slow down the TPU."""
    only_vm = refused(Refusal(NOW, ZONE, Retry.CAPACITY, kind=Kind.VM))
    assert create_gate(spec(), only_vm, ZONE) == 0.0
    assert create_gate(spec(), only_vm, ZONE, Kind.VM) > NOW
    assert create_gate(spec(), refused(*CAPACITY), OTHER_ZONE) == 0.0
    assert next_zone(spec(), only_vm, NOW) == ZONE


def test_the_next_zone_is_the_first_that_has_not_refused_then_the_least_refused():
    """Preference first, then fairness."""
    assert next_zone(spec(), record(), NOW) == ZONE
    assert next_zone(spec(), refused(*CAPACITY), NOW) == OTHER_ZONE
    both = [*CAPACITY, Refusal(NOW, OTHER_ZONE, Retry.CAPACITY)]
    assert next_zone(spec(), refused(*both), NOW) == ZONE
    assert next_zone(spec(), refused(*both, *CAPACITY), NOW) == OTHER_ZONE


def held(zone, at=NOW, **fields):
    """Return a record that knows that quota in *zone* has no room beside one of ours."""
    return record(capacity_history=after_full((), zone, TYPE, at), **fields)


LOST = world(nodes=Present((node(state=NodeState.PREEMPTED),)))


def asked_for(spec, world, record):
    """Return where a TPU is asked for, and the waits."""
    plan = decide(spec, world, record)
    creates = [c.zone for c in plan.changes if (c.kind, c.verb) == (Kind.NODE, Verb.CREATE)]
    return creates, [text for text in plan.waiting if "quota" in text]


def test_a_zone_that_holds_one_is_not_asked_beside_a_node_of_ours():
    """Another zone is asked at once; where there is none, the deletion is waited for, with one line."""
    only = spec(tpu=replace(spec().tpu, zones=(ZONE,)))
    assert asked_for(only, LOST, record()) == ([ZONE], [])
    line = f"TPU: the old one holds the quota in {ZONE} until it is deleted; checked again in 5 s"
    assert asked_for(only, LOST, held(ZONE)) == ([], [line])
    assert asked_for(spec(), LOST, held(ZONE)) == ([OTHER_ZONE], [])
    gone = world(nodes=Present(()), heartbeats=Present(()))
    absent = {f"node:1:{word}": NOW - 300 for word in ("absent", "preempted")}
    assert asked_for(only, gone, held(ZONE, first_seen=absent)) == ([ZONE], [])


def test_what_is_known_of_quota_is_tried_again_after_a_day_or_a_deletion_that_does_not_end():
    """Quota may have been raised, and a deletion that hangs must not keep a job waiting for ever."""
    only = spec(tpu=replace(spec().tpu, zones=(ZONE,)))
    assert asked_for(only, LOST, held(ZONE, NOW - FULL_FOR + 1))[0] == []
    assert asked_for(only, LOST, held(ZONE, NOW - FULL_FOR))[0] == [ZONE]
    hangs = held(ZONE, first_seen={"deleting:demo-tpu-g1": NOW - MAX_GOING})
    assert asked_for(only, LOST, hangs)[0] == [ZONE]


def test_a_refusal_of_quota_beside_a_node_of_ours_says_nothing_of_the_zones_capacity():
    """It is remembered as what it is; the spot quota says nothing about on demand."""
    beside = update_record(refused(Refusal(NOW, ZONE, Retry.QUOTA, beside=True)), world())
    assert holds_one(beside.capacity_history, ZONE, TYPE, NOW)
    assert [(p.refused, p.out_at) for p in beside.capacity_history if p.zone == ZONE] == [(0, 0.0)]
    alone = update_record(refused(Refusal(NOW, ZONE, Retry.QUOTA)), world(nodes=Present(())))
    assert not holds_one(alone.capacity_history, ZONE, TYPE, NOW)
    assert not holds_one(of_mode(beside, on_demand=True).capacity_history, ZONE, TYPE, NOW)
    on_demand = update_record(refused(Refusal(NOW, ZONE, Retry.QUOTA, beside=True, on_demand=True)), world())
    assert not holds_one(on_demand.capacity_history, ZONE, TYPE, NOW)


def test_what_another_loop_has_learned_of_quota_is_used():
    """The newer of both counts; what is yet to come is not believed."""
    mine, theirs = after_full((), ZONE, "", NOW - 50), after_full((), ZONE, "", NOW - 5)
    assert zone_history(merged(mine, theirs, NOW), ZONE, "").full_at == NOW - 5
    assert zone_history(merged(theirs, mine, NOW), ZONE, "").full_at == NOW - 5
    assert merged(mine, after_full((), ZONE, "", NOW + 99), NOW) == mine


def test_a_transient_refusal_does_not_move_the_deployment():
    """A 503 says nothing about the zone's machines."""
    assert next_zone(spec(), refused(Refusal(NOW, ZONE, Retry.TRANSIENT)), NOW) == ZONE


def test_capacity_is_asked_for_without_end_and_a_permission_once():
    """What waiting cures is waited for; what it does not cure stops."""
    assert hopeless(refused(*CAPACITY * 1000)) is None
    assert hopeless(refused(*[Refusal(NOW, ZONE, Retry.TRANSIENT)] * 1000)) is None
    assert hopeless(refused(Refusal(NOW, ZONE, Retry.PERMANENT))) is not None
    quota = [Refusal(NOW, ZONE, Retry.QUOTA)] * QUOTA_TRIES
    assert hopeless(refused(*quota[1:])) is None
    assert hopeless(refused(*quota)) is not None


def test_refusals_of_different_kinds_are_not_added_up():
    """Three for the VM and two for the TPU are not five for one of them."""
    mixed = [Refusal(NOW, ZONE, Retry.QUOTA, kind=kind) for kind in (Kind.VM, Kind.NODE)]
    assert hopeless(refused(*mixed * 4)) is None


REFUSALS = st.lists(
    st.builds(
        Refusal, st.floats(NOW - 1e6, NOW), st.sampled_from([ZONE, OTHER_ZONE]), st.sampled_from(Retry),
        kind=st.sampled_from([Kind.NODE, Kind.VM, Kind.BUCKET]),
    ),
    max_size=40,
)  # fmt: skip


@given(REFUSALS)
def test_a_pause_is_never_longer_than_five_minutes(refusals):
    """Whatever has happened, the next try is near; and the zone is one that the user has named."""
    past = refused(*sorted(refusals, key=lambda r: r.at))
    assert create_gate(spec(), past, ZONE) <= NOW + MAX_PAUSE == NOW + 300
    assert next_zone(spec(), past, NOW) in spec().tpu.zones
