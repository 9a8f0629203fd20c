"""The catalogue of accelerators, zones, runtimes and prices."""

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.catalog import TABLES, build, region_zones


@pytest.fixture
def catalog():
    """Give the catalogue of the package."""
    return load_catalog()


def test_a_multi_host_type_tells_its_workers(catalog):
    """v5litepod-16 is four machines of four chips."""
    found = catalog.accelerator("v5litepod-16")
    assert (found.hosts, found.chips_per_host, found.chips, found.topology) == (4, 4, 16, "4x4")


def test_the_number_counts_cores_up_to_v5p_and_chips_for_v5e_and_v6e(catalog):
    """v3-8 has four chips, v6e-8 has eight."""
    assert (catalog.accelerator("v3-8").chips, catalog.accelerator("v6e-8").chips) == (4, 8)


def test_what_is_not_in_the_table_is_none(catalog):
    """Unknown is said, not guessed."""
    assert catalog.accelerator("v9-8") is None
    assert catalog.runtime_for("v9-8") is None
    assert catalog.tpu_price("v9-8", "us-central1-a", spot=True) is None
    assert catalog.types_in("mars-north1-a") == ()


def test_tpu7x_is_known_but_not_served_by_the_tpu_api(catalog):
    """The type exists, so that the message can say why it is refused."""
    assert not catalog.accelerator("tpu7x-2x2x1").tpu_api
    assert "tpu7x-2x2x1" not in catalog.served()
    assert catalog.zones_of("tpu7x-2x2x1") == ()


@pytest.mark.parametrize(
    ("zone", "has", "lacks"),
    [
        ("us-central1-b", "v2-8", "v2-32"),
        ("us-central1-a", "v2-512", "v2-8"),
        ("us-central1-a", "v3-8", "v3-32"),
        ("europe-west4-a", "v2-512", "v4-8"),
    ],
)
def test_notes_on_sizes_are_respected(catalog, zone, has, lacks):
    """Some zones serve only part of a generation."""
    assert has in catalog.types_in(zone)
    assert lacks not in catalog.types_in(zone)


def test_every_served_type_has_a_runtime(catalog):
    """`up` needs a software version for whatever the file may name."""
    assert [name for name in catalog.served() if not catalog.runtime_for(name)] == []


def test_patterns_and_images_are_not_offered_as_runtimes(catalog):
    """The table also explains naming rules; they are not versions."""
    assert "tpu-ubuntu2204-base" in catalog.runtimes
    assert [name for name in catalog.runtimes if " " in name or "[" in name or "x.y" in name] == []


def test_a_slice_costs_its_chips(catalog):
    """Sixteen chips of v5e cost sixteen times the chip price of the zone."""
    assert catalog.tpu_price("v5litepod-16", "europe-west4-b", spot=True) == pytest.approx(16 * 0.51011)
    assert catalog.tpu_price("v5litepod-16", "europe-west4-b", spot=False) == pytest.approx(16 * 1.56)


def test_pods_of_v2_have_their_own_rate(catalog):
    """A v2-32 costs more per chip than a v2-8."""
    assert catalog.tpu_price("v2-8", "europe-west4-a", spot=False) == pytest.approx(4 * 1.2375)
    assert catalog.tpu_price("v2-32", "europe-west4-a", spot=False) == pytest.approx(16 * 1.5)


def test_an_empty_price_is_unknown_and_never_zero(catalog):
    """v3-8 in us-east1-d has an on-demand price only; v6e in us-central2-b has none."""
    assert catalog.tpu_price("v3-8", "us-east1-d", spot=True) is None
    assert catalog.tpu_price("v3-8", "us-east1-d", spot=False) == pytest.approx(8.0)
    assert catalog.tpu_price("v6e-8", "us-central2-b", spot=False) is None


def test_the_placeholder_of_the_source_is_unknown():
    """The source writes 700.0 where it has no price; a table that still holds it is not believed."""
    tables = _texts()
    tables["tpu_prices"] = tables["tpu_prices"].replace("1.56,0.51011", "700.0,700.0")
    assert build(tables).tpu_price("v5litepod-8", "europe-west4-b", spot=True) is None


def test_vm_disk_address_and_storage_have_prices(catalog):
    """All that a deployment creates is priced in a usual region."""
    assert catalog.vm_price("e2-small", "us-central1", spot=False) == pytest.approx(0.016751, rel=0.01)
    assert catalog.vm_price("e2-small", "us-central2", spot=False) is None
    assert catalog.disk_price("pd-standard", "us-central1") == 0.04
    assert catalog.address_price("us-central1") == 0.005
    assert catalog.storage_price("us-central1") == 0.02


def test_each_table_tells_its_date(catalog):
    """A price without a date is a rumour."""
    assert set(catalog.dates) == set(TABLES)
    assert catalog.dates["vm_prices"] == "2026-07-30"
    assert all(date[:2] == "20" for date in catalog.dates.values())


def test_a_table_without_a_date_says_unknown():
    """The date is read from the table, not made up."""
    tables = _texts()
    tables["vm_prices"] = "\n".join(line for line in tables["vm_prices"].splitlines() if line[0] != "#")
    assert build(tables).dates["vm_prices"] == "unknown"


def test_zones_of_a_region_are_found(catalog):
    """A region typed instead of a zone gets the zones there as a hint."""
    assert region_zones(catalog, "europe-west4") == ("europe-west4-a", "europe-west4-b")


def _texts():
    from importlib.resources import files

    return {name: (files("orchestrator") / "data" / f"{name}.csv").read_text() for name in TABLES}
