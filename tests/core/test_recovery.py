"""
Where and when to ask again, and when to stop asking.
"""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.history import Refusal
from orchestrator.core.plan import Kind
from orchestrator.core.recovery import (
    FIRST_DELAY,
    LONGEST_DELAY,
    LONGEST_PAUSE,
    QUOTA_TRIES,
    create_gate,
    hopeless,
    next_zone,
)
from orchestrator.errors import Retry
from tests.core.worlds import NOW, OTHER_ZONE, ZONE, history, spec

CAPACITY = [Refusal(NOW, ZONE, Retry.CAPACITY)]


def refused(*refusals):
    """
    Return a record with these refusals.
    """
    return history(refusals=tuple(refusals))


@pytest.mark.parametrize("retry", Retry)
def test_pauses_double_from_the_first_delay_up_to_their_cap(retry):
    """
    Each class of refusal has its own pace; jitter makes a pause up to half a delay shorter or longer.
    """
    gates = [create_gate(spec(), refused(*[Refusal(NOW, ZONE, retry)] * n), ZONE) - NOW for n in range(1, 14)]
    delays = [min(FIRST_DELAY[retry] * 2**n, LONGEST_DELAY[retry]) for n in range(13)]
    assert all(0.5 <= gate / delay <= 1.5 for gate, delay in zip(gates, delays, strict=True))
    # One refusal at one time has one fraction, so what is left is the doubling.
    assert [gate / gates[0] for gate in gates] == pytest.approx([delay / delays[0] for delay in delays])


def test_deployments_refused_together_ask_again_apart():
    """
    A stockout hits all at once; their next asks spread over a whole delay, evenly, and around the same mean.
    """
    refusals = refused(*CAPACITY * 9)
    delay = LONGEST_DELAY[Retry.CAPACITY]
    pauses = sorted(create_gate(spec(name=f"run-{n}"), refusals, ZONE) - NOW for n in range(200))
    assert pauses[0] < 0.55 * delay
    assert pauses[-1] > 1.45 * delay
    assert max(b - a for a, b in itertools.pairwise(pauses)) < 0.05 * delay
    assert sum(pauses) / len(pauses) == pytest.approx(delay, rel=0.05)


def test_one_deployment_waits_for_the_same_moment_at_each_look_and_draws_anew_after_each_refusal():
    """
    A controller that was started again finds the gate where it was; two asks in a row are not in step.
    """
    first, later = CAPACITY * 9, [*CAPACITY * 9, Refusal(NOW + 90, ZONE, Retry.CAPACITY)]
    gate = create_gate(spec(), refused(*first), ZONE)
    assert gate == create_gate(spec(), refused(*first), ZONE)
    assert create_gate(spec(), refused(*later), ZONE) - 90 != gate


def test_a_refusal_holds_back_only_its_own_kind_and_zone():
    """
    A VM that cannot be had does not slow down the TPU.
    """
    only_vm = refused(Refusal(NOW, ZONE, Retry.CAPACITY, kind=Kind.VM))
    assert create_gate(spec(), only_vm, ZONE) == 0.0
    assert create_gate(spec(), only_vm, ZONE, Kind.VM) > NOW
    assert create_gate(spec(), refused(*CAPACITY), OTHER_ZONE) == 0.0
    assert next_zone(spec(), only_vm, NOW) == ZONE


def test_the_next_zone_is_the_first_that_has_not_refused_then_the_least_refused():
    """
    Preference first, then fairness.
    """
    assert next_zone(spec(), history(), NOW) == ZONE
    assert next_zone(spec(), refused(*CAPACITY), NOW) == OTHER_ZONE
    both = [*CAPACITY, Refusal(NOW, OTHER_ZONE, Retry.CAPACITY)]
    assert next_zone(spec(), refused(*both), NOW) == ZONE
    assert next_zone(spec(), refused(*both, *CAPACITY), NOW) == OTHER_ZONE


def test_a_transient_refusal_does_not_move_the_deployment():
    """
    A 503 says nothing about the zone's machines.
    """
    assert next_zone(spec(), refused(Refusal(NOW, ZONE, Retry.TRANSIENT)), NOW) == ZONE


def test_capacity_is_asked_for_without_end_and_a_permission_once():
    """
    What waiting cures is waited for; what it does not cure stops.
    """
    assert hopeless(refused(*CAPACITY * 1000)) is None
    assert hopeless(refused(*[Refusal(NOW, ZONE, Retry.TRANSIENT)] * 1000)) is None
    assert hopeless(refused(Refusal(NOW, ZONE, Retry.PERMANENT))) is not None
    quota = [Refusal(NOW, ZONE, Retry.QUOTA)] * QUOTA_TRIES
    assert hopeless(refused(*quota[1:])) is None
    assert hopeless(refused(*quota)) is not None


def test_refusals_of_different_kinds_are_not_added_up():
    """
    Three for the VM and two for the TPU are not five for one of them.
    """
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
    """
    Whatever has happened, the next try is near; and the zone is one that the user has named.
    """
    past = refused(*sorted(refusals, key=lambda r: r.at))
    assert create_gate(spec(), past, ZONE) <= NOW + LONGEST_PAUSE == NOW + 300
    assert next_zone(spec(), past, NOW) in spec().tpu.zones
