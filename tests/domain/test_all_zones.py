"""One list over all zones: what it says of some of them, and of the others."""

import pytest

from orchestrator.domain.all_zones import AllZones, both, expected_in, outside, within
from orchestrator.domain.observation import Absent, Node, NodeState, Present, Unknown
from orchestrator.domain.record import Candidate
from orchestrator.errors import Retry
from tests.kit.records import record_of

A, B, C = "us-east1-b", "us-east1-c", "us-west4-a"
TPUS = tuple(Node(f"in-{zone}", zone, NodeState.READY, 1) for zone in (A, B, C))


def test_what_was_reached_is_known():
    """A zone that shows nothing is empty; what is not asked for is left out."""
    observed = Present(AllZones(TPUS[:1], (C,)))
    assert within(observed, (A, B)) == Present(TPUS[:1])
    assert within(Present(AllZones(TPUS)), (B,)) == Present(TPUS[1:2])
    assert outside(AllZones(TPUS), (A, C)) == TPUS[1:2]


@pytest.mark.parametrize("place", [B, "us-east1", "-"])
def test_a_zone_that_was_not_reached_is_unknown_and_never_absent(place):
    """Whether the zone is named, its region, or everything."""
    found = within(Present(AllZones(TPUS[:1], (place,))), (A, B))
    assert isinstance(found, Unknown)
    assert found.retry is Retry.TRANSIENT
    assert B in found.message


def test_no_list_at_all_is_unknown():
    """With the reason that it came with."""
    refused = Unknown("refused", Retry.PERMANENT)
    assert within(refused, (A,)) is refused


def test_two_lists_are_known_when_both_are():
    """Half a list is not a list."""
    one, two, none = Present(TPUS[:1]), Present(TPUS[1:]), Unknown("x")
    assert both(one, two) == Present(TPUS)
    assert both(one, Absent()) == one
    assert both(one, none) is both(none, one) is none


def test_where_a_tpu_should_be_its_zone_is_asked():
    """The newest one's zone, and those of a race; who never asked for one expects it nowhere."""
    assert expected_in(record_of(zone=A), (A, B, C)) == ()
    record = record_of(incarnation=4, zone=C, rivals=(Candidate(5, A, 0.0),))
    assert expected_in(record, (A, B, C)) == (A, C)
