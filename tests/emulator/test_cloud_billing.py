"""What the local cloud would have cost."""

import pytest

from tests.emulator.emulator_lab import NODES, SPOT_NODE, SPOT_VM, VMS, ZONE, a_lab

HOUR = 3600.0
# USD per chip-hour of v5e spot in europe-west4-b, and per hour of e2-small in europe-west4.
V5E_SPOT, E2_SMALL, E2_SMALL_SPOT, DISK_GIB_MONTH = 0.51011, 0.018443, 0.008816, 0.044


def test_a_spot_slice_costs_its_chips_from_ready_to_its_end():
    """Eight chips for an hour at the spot price; nothing after the preemption."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.after(HOUR)
    lab.cloud.preempt("n1", notice=False)
    lab.after(HOUR)
    (line,) = lab.cloud.bill()
    assert (line.kind, line.zone, line.sku, line.spot) == ("tpu", ZONE, "v5litepod-8", True)
    assert line.seconds == pytest.approx(HOUR)
    assert line.usd == pytest.approx(8 * V5E_SPOT)


def test_a_preemption_in_the_first_minute_is_free():
    """59 seconds cost nothing, 61 seconds cost 61."""
    lab = a_lab()
    lab.node("early", **SPOT_NODE)
    lab.after(59)
    lab.cloud.preempt("early", notice=False)
    lab.node("late", **SPOT_NODE)
    lab.after(61)
    lab.cloud.preempt("late", notice=False)
    early, late = lab.cloud.bill()
    assert early.usd == 0
    assert late.usd == pytest.approx(8 * V5E_SPOT * 61 / HOUR)


def test_a_stopped_vm_costs_its_disk_only():
    """The VM is billed while it runs, its 20 GiB disk all the time."""
    lab = a_lab()
    lab.vm(**SPOT_VM)
    lab.vm("v2")
    lab.after(HOUR)
    lab.cloud.preempt("v1", notice=False)
    lab.ok("DELETE", f"{VMS}/v2")
    lab.after(0.5)
    lab.after(HOUR)
    lines = {(line.kind, line.resource.rsplit("/", 1)[1]): line for line in lab.cloud.bill()}
    assert lines["vm", "v1"].usd == pytest.approx(E2_SMALL_SPOT * lines["vm", "v1"].seconds / HOUR)
    assert lines["vm", "v1"].seconds == pytest.approx(HOUR + 1)
    assert lines["vm", "v2"].usd == pytest.approx(E2_SMALL * (HOUR + 0.5) / HOUR)
    disk = lines["disk", "v1"]
    assert disk.usd == pytest.approx(20 * DISK_GIB_MONTH / 730 * disk.seconds / HOUR)
    assert disk.seconds > 2 * HOUR


def test_a_node_deleted_in_the_first_minute_is_not_free():
    """Only a preemption is free; what the caller deletes is billed from its first second."""
    lab = a_lab()
    lab.node(**SPOT_NODE)
    lab.after(30)
    lab.ok("DELETE", f"{NODES}/n1")
    lab.after(10)
    (line,) = lab.cloud.bill()
    assert line.usd == pytest.approx(8 * V5E_SPOT * 30 / HOUR)
