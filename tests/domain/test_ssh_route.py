"""Which route leads to a machine, from where the controller runs."""

import pytest

from orchestrator.engine.routes import RouteKind, route_to_vm, route_to_worker

OUTSIDE = "203.0.113.7"


@pytest.mark.parametrize(
    ("external", "inside", "route"),
    [
        (OUTSIDE, False, RouteKind.OUTSIDE),
        ("", False, RouteKind.IAP),
        (OUTSIDE, True, RouteKind.INSIDE),
        ("", True, RouteKind.INSIDE),
    ],
)
def test_the_vm_is_reached_straight_or_through_iap(external, inside, route):
    """A machine of the same network uses the internal address, whatever else there is."""
    assert route_to_vm(external, inside=inside) is route


@pytest.mark.parametrize(
    ("external", "inside", "vm", "route"),
    [
        (OUTSIDE, False, True, RouteKind.OUTSIDE),
        (OUTSIDE, False, False, RouteKind.OUTSIDE),
        ("", False, True, RouteKind.JUMP),
        ("", False, False, RouteKind.INSIDE),
        (OUTSIDE, True, True, RouteKind.INSIDE),
        ("", True, True, RouteKind.INSIDE),
        ("", True, False, RouteKind.INSIDE),
    ],
)
def test_a_worker_is_reached_straight_or_through_the_vm(external, inside, vm, route):
    """Without a VM nothing but the internal address is left."""
    assert route_to_worker(external, inside=inside, vm=vm) is route
