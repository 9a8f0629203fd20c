"""Which way leads to a machine, from where the controller runs."""

import pytest

from orchestrator.domain.ssh_route import Road, road_to_vm, road_to_worker

OUTSIDE = "203.0.113.7"


@pytest.mark.parametrize(
    ("external", "inside", "road"),
    [
        (OUTSIDE, False, Road.OUTSIDE),
        ("", False, Road.IAP),
        (OUTSIDE, True, Road.INSIDE),
        ("", True, Road.INSIDE),
    ],
)
def test_the_vm_is_reached_straight_or_through_iap(external, inside, road):
    """A machine of the same network uses the internal address, whatever else there is."""
    assert road_to_vm(external, inside=inside) is road


@pytest.mark.parametrize(
    ("external", "inside", "vm", "road"),
    [
        (OUTSIDE, False, True, Road.OUTSIDE),
        (OUTSIDE, False, False, Road.OUTSIDE),
        ("", False, True, Road.JUMP),
        ("", False, False, Road.INSIDE),
        (OUTSIDE, True, True, Road.INSIDE),
        ("", True, True, Road.INSIDE),
        ("", True, False, Road.INSIDE),
    ],
)
def test_a_worker_is_reached_straight_or_through_the_vm(external, inside, vm, road):
    """Without a VM nothing but the internal address is left."""
    assert road_to_worker(external, inside=inside, vm=vm) is road
