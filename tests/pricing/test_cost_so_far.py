"""What a deployment has cost up to now."""

from dataclasses import replace

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.observation import Absent, Present, Unknown, Vm, VmState
from orchestrator.domain.plan import Kind
from orchestrator.domain.record import Span
from orchestrator.planning.update_record import update_record
from orchestrator.pricing.cost import Meter, estimate, hourly
from orchestrator.pricing.cost_so_far import cost_so_far, rates_now
from tests.planning.planning_kit import a_spec
from tests.planning.worlds import NOW, record, world

CATALOG = load_catalog()
SPEC = a_spec(tpu__type="v5litepod-8")
ZONE = SPEC.tpu.zones[0]


def node(since, until=None, name="n"):
    """Return a node's span."""
    return Span(Kind.NODE, name, ZONE, since, until)


def test_nothing_has_cost_nothing():
    """No span, no money."""
    assert cost_so_far(SPEC, CATALOG, record(), NOW).known_usd == 0.0


def test_an_open_span_is_billed_up_to_now_and_a_closed_one_to_its_end():
    """Two nodes of an hour each cost twice the hourly rate of one."""
    spans = (node(NOW - 7200, NOW - 3600), node(NOW - 3600, name="m"))
    hour = cost_so_far(SPEC, CATALOG, record(spans=(node(NOW - 3600),)), NOW).known_usd
    assert hour > 0
    assert cost_so_far(SPEC, CATALOG, record(spans=spans), NOW).known_usd == pytest.approx(2 * hour)
    assert cost_so_far(SPEC, CATALOG, record(spans=spans[:1]), NOW + 9e9).known_usd == pytest.approx(hour)


def test_a_clock_that_went_backwards_costs_nothing_back():
    """Money is never negative."""
    assert cost_so_far(SPEC, CATALOG, record(spans=(node(NOW + 500),)), NOW).known_usd == 0.0


def test_the_vm_is_billed_with_its_disk():
    """A VM costs its machine and its boot disk, each for the same time."""
    machine = Span(Kind.VM, "v", ZONE, NOW - 3600)
    both = estimate(hourly(SPEC, CATALOG, ZONE), {Meter.VM: 3600.0, Meter.DISK: 3600.0})
    known = record(spans=(machine,), disks=(machine,))
    assert cost_so_far(SPEC, CATALOG, known, NOW).known_usd == both.known_usd > 0


def test_the_disk_of_a_stopped_vm_is_billed_until_the_vm_is_gone():
    """Stopped, a VM costs its disk alone; what exists costs that much an hour, and nothing once it is deleted."""
    ran = Span(Kind.VM, "v", ZONE, NOW - 7200, NOW - 3600)
    disk = estimate(hourly(SPEC, CATALOG, ZONE), {Meter.DISK: 3600.0}).known_usd
    stopped = record(spans=(ran,), disks=(replace(ran, until=None),))
    gone = record(spans=(ran,), disks=(ran,))
    assert cost_so_far(SPEC, CATALOG, stopped, NOW).known_usd == pytest.approx(
        cost_so_far(SPEC, CATALOG, gone, NOW).known_usd + disk
    )
    assert rates_now(SPEC, CATALOG, stopped) == pytest.approx((disk, disk))
    assert rates_now(SPEC, CATALOG, gone) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("vm", "still"),
    [
        (Present(Vm("v", ZONE, VmState.TERMINATED)), True),
        (Unknown("the list did not come"), True),
        (Absent(), False),
    ],
    ids=lambda one: type(one).__name__,
)
def test_only_a_sure_absence_of_the_vm_ends_the_bill_of_its_disk(vm, still):
    """A stop ends the bill of the machine alone, and what could not be observed ends nothing."""
    running = update_record(record(), world(vm=Present(Vm("v", ZONE, VmState.RUNNING)), observed_at=NOW - 60))
    after = update_record(running, world(vm=vm, observed_at=NOW))
    assert [disk.until is None for disk in after.disks] == [still]


def test_an_unknown_price_is_said_and_not_taken_for_zero():
    """The total is unknown, the known part is still there."""
    lost = Span(Kind.NODE, "n", "mars-central1-a", NOW - 3600)
    found = cost_so_far(SPEC, CATALOG, record(spans=(lost, node(NOW - 3600))), NOW)
    assert found.usd is None
    assert found.known_usd > 0
    assert found.unpriced


@pytest.mark.parametrize(
    ("started", "began", "before", "since"),
    [
        (NOW - 100, NOW - 500, (), NOW - 100),
        (NOW - 900, NOW - 500, (), NOW - 500),
        (NOW + 60, NOW - 500, (), NOW),
        (0.0, NOW - 500, (), NOW),
        (NOW - 300, NOW - 500, (Span(Kind.VM, "v", ZONE, NOW - 400, NOW - 200),), NOW - 200),
    ],
    ids=["not observed", "adopted, older", "a clock ahead", "unknown", "stopped in between"],
)
def test_a_vm_that_ran_while_nothing_was_observed_is_billed_from_its_start(started, began, before, since):
    """After a Ctrl-C in `up` the next pass may come late; the money runs from the VM's start."""
    vm = Vm("v", ZONE, VmState.RUNNING, started_at=started)
    known = record(started_at=began, spans=before)
    after = update_record(known, world(vm=Present(vm), nodes=Present(())))
    assert [span.since for span in after.spans if span.until is None] == [since]
    assert [span.since for span in after.disks] == [since], "its disk is there as long"


@pytest.mark.parametrize(
    ("state", "until"),
    [
        (Present(Vm("v", ZONE, VmState.TERMINATED, started_at=NOW - 900, stopped_at=NOW - 300)), NOW - 300),
        (Present(Vm("v", ZONE, VmState.TERMINATED, started_at=NOW - 900, stopped_at=NOW + 60)), NOW),
        (Present(Vm("v", ZONE, VmState.TERMINATED, started_at=NOW - 900, stopped_at=NOW - 850)), NOW - 800),
        (Present(Vm("v", ZONE, VmState.TERMINATED, started_at=NOW - 900, stopped_at=NOW - 1000)), NOW),
        (Present(Vm("v", ZONE, VmState.TERMINATED, started_at=NOW - 900)), NOW),
        (Present(Vm("v", ZONE, VmState.STOPPING, started_at=NOW - 900, stopped_at=NOW - 300)), None),
        (Absent(), NOW),
    ],
    ids=["stopped", "a clock ahead", "a clock behind", "an earlier stop", "not told", "stopping", "deleted"],
)
def test_a_vm_that_stopped_while_nothing_was_observed_is_billed_until_its_stop(state, until):
    """The loop on the VM stops its own machine: nobody observes the end."""
    span = Span(Kind.VM, "v", ZONE, NOW - 800)
    after = update_record(record(spans=(span,), disks=(span,)), world(vm=state, nodes=Present(())))
    assert [span.until for span in after.spans] == [until]
