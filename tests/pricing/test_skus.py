"""The billing catalogue becomes prices per chip-hour; what tpuctl never pays is left out."""

import pytest

from orchestrator.config.shipped_catalog import shipped_catalog
from orchestrator.domain.catalog import Price
from orchestrator.pricing.skus import prices_of

V5E = ("v5e", "us-central1", False)


def sku(text="TpuV5e accelerator", usage="OnDemand", units="1", nanos=200_000_000, **more):
    """Return one SKU as the API lists it."""
    rate = {"unitPrice": {"currencyCode": "USD", "units": units, "nanos": nanos}}
    return {
        "description": text,
        "category": {"resourceGroup": "TPU", "usageType": usage},
        "serviceRegions": ["us-central1"],
        "pricingInfo": [{"pricingExpression": {"tieredRates": [rate]}}],
        **more,
    }


def test_on_demand_and_spot_are_distinguished():
    """By the usage type, whose word for spot is Preemptible."""
    found = prices_of(
        [sku(), sku("TpuV5e attached to Spot Preemptible VMs", "Preemptible", "0", 600_000_000)]
    )
    assert found == {V5E: Price(1.2, 0.6)}


def test_older_generations_are_sold_by_four_chips_and_pods_have_a_rate_of_their_own():
    """4.5 USD for a v2-8 are 1.125 for a chip."""
    found = prices_of(
        [sku("Tpu-v2 accelerator", units="4", nanos=500_000_000), sku("Tpu-v2 Pod", units="6", nanos=0)]
    )
    assert found["v2", "us-central1", False].on_demand == 1.125
    assert found["v2", "us-central1", True].on_demand == 1.5


@pytest.mark.parametrize(
    "other",
    [
        sku("TpuV5e DWS Defined Duration"), sku("Reserved TpuV5e"), sku("Commitment v1: TpuV5e for 1 year"),
        sku(usage="Commit1Yr"), sku(units="0", nanos=0), sku("N1 core"),
        sku(category={"resourceGroup": "CPU"}), sku(pricingInfo=[]), {},
        sku(serviceRegions=None), sku(units="x"),
    ],
)  # fmt: skip
def test_what_is_no_price_of_ours_is_skipped(other):
    """Reservations, commitments, other machines, and what nobody understands."""
    assert prices_of([other]) == {}


def test_of_two_prices_for_one_place_the_greater_counts():
    """A budget must not be spent twice as fast as it says."""
    assert prices_of([sku(), sku(nanos=900_000_000)])[V5E].on_demand == 1.9


def test_fresh_prices_end_the_doubt_and_what_is_missing_keeps_what_it_had():
    """A price that only one of the sources has stays as it was."""
    shipped = shipped_catalog()
    fresh = shipped.with_prices({("v5e", "europe-west4", False): Price(None, 0.7)}, "2026-11-23")
    low, high = (
        fresh.tpu_price("v5litepod-4", "europe-west4-b", spot=True, upper=upper) for upper in (False, True)
    )
    assert low == high == pytest.approx(2.8)
    before = shipped.tpu_price("v5litepod-4", "europe-west4-b", spot=False)
    assert fresh.tpu_price("v5litepod-4", "europe-west4-b", spot=False) == before
    assert fresh.dates["tpu_prices"] == "2026-11-23"
    other = ("v5litepod-4", "us-central1-a")
    assert fresh.tpu_price(*other, spot=True, upper=True) == shipped.tpu_price(*other, spot=True, upper=True)
