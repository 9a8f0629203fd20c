"""Prices per hour and sums."""

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.pricing.cost import Meter, estimate, hourly, to_budget, to_ttl
from tests.planning.planning_kit import a_spec

ZONE = "europe-west4-b"


def price(zone=ZONE, **overrides):
    """Return the hourly price of a deployment with overrides."""
    return hourly(a_spec(**overrides), load_catalog(), zone)


def test_every_part_of_a_deployment_has_its_line():
    """TPU, one address a worker, VM, its address and its disk are listed."""
    names = [line.what for line in price().lines]
    assert names == [
        "TPU v5litepod-16",
        "TPU external address x4",
        "VM e2-small",
        "VM external address",
        "VM disk 50 GB",
    ]


def test_what_is_asked_for_is_what_is_billed():
    """A spot TPU is billed at the spot price, a standard VM on demand."""
    lines = {line.meter: line for line in reversed(price().lines)}
    assert lines[Meter.NODE].billed_usd == lines[Meter.NODE].spot_usd
    assert lines[Meter.VM].billed_usd == lines[Meter.VM].on_demand_usd
    on_demand = price(tpu__spot=False, vm__spot=True).lines
    assert on_demand[0].billed_usd == on_demand[0].on_demand_usd
    assert on_demand[2].billed_usd == on_demand[2].spot_usd


def test_what_is_not_created_costs_nothing():
    """No VM, no addresses: the TPU alone is left."""
    assert [line.what for line in price(vm="none", tpu__external_ip=False).lines] == ["TPU v5litepod-16"]


def test_the_sums_add_up():
    """Sums are those of the lines."""
    found = price()
    assert found.billed_usd == pytest.approx(sum(line.billed_usd for line in found.lines))
    assert found.on_demand_usd > found.spot_usd


def test_one_unknown_price_makes_the_sum_unknown():
    """A sum without a part would read as cheap."""
    found = price(tpu__type="v4-8", tpu__zones=["us-central2-b"], zone="us-central2-b")
    assert found.billed_usd is None
    assert "VM e2-small" in found.unpriced
    assert to_ttl(found, 3600) is None
    assert to_budget(found, 40) is None


def test_an_estimate_counts_each_meter_by_its_own_time():
    """Two hours of TPU and ten of VM and disk."""
    found = price()
    node, vm, disk = (
        sum(line.billed_usd for line in found.lines if line.meter is meter)
        for meter in (Meter.NODE, Meter.VM, Meter.DISK)
    )
    cost = estimate(found, {Meter.NODE: 7200, Meter.VM: 36000, Meter.DISK: 36000})
    assert cost.usd == pytest.approx(2 * node + 10 * vm + 10 * disk)


def test_an_estimate_with_an_unknown_part_says_so():
    """The known part is given apart; the whole is unknown."""
    found = price(
        tpu__type="v4-8", tpu__zones=["us-central2-b"], tpu__external_ip=False, zone="us-central2-b"
    )
    cost = estimate(found, {Meter.NODE: 3600, Meter.VM: 3600})
    assert cost.usd is None
    assert cost.known_usd == pytest.approx(4 * 0.9215)
    assert "VM e2-small" in cost.unpriced


def test_an_unknown_price_that_did_not_run_does_no_harm():
    """Only what ran must have a price."""
    found = price(
        tpu__type="v4-8", tpu__zones=["us-central2-b"], tpu__external_ip=False, zone="us-central2-b"
    )
    assert estimate(found, {Meter.NODE: 3600}).usd == pytest.approx(4 * 0.9215)


def test_budget_and_ttl_are_two_views_of_one_rate():
    """What the budget lasts for costs the budget, at the upper end of the prices."""
    found = price()
    seconds = to_budget(found, 40)
    assert found.upper_usd * seconds / 3600 == pytest.approx(40)
    assert to_ttl(found, seconds) < 40


def test_where_sources_differ_a_price_is_a_range():
    """Spot of v5e in europe-west4 is 0.51 in one and 0.78 in the other: a budget counts 0.78."""
    line = price().lines[0]
    assert (line.billed_usd, line.upper_usd) == pytest.approx((16 * 0.51011, 16 * 0.78))
    alike = price(zone="us-east5-a", tpu__zones=["us-east5-a"]).lines[0]
    assert alike.billed_usd == alike.upper_usd


def test_an_estimate_tells_the_upper_end_too():
    """It is what a budget stops by."""
    cost = estimate(price(), {Meter.NODE: 3600.0})
    assert cost.upper_usd - cost.usd == pytest.approx(16 * (0.78 - 0.51011))


def test_the_age_of_the_prices_is_printed():
    """Each table has its own date."""
    assert price().date_text == "TPU prices of 2026-11, VM prices of 2026-07-30; a budget counts the highest"
