"""`tpuctl zones` lists which zones offer which types of TPU, at which prices, without a network."""

import pytest

from orchestrator.config.shipped_catalog import load_catalog
from tests.cli.cli_kit import document, here


def test_all_types_are_listed_with_the_price_of_a_chip(capsys):
    """As docs/zones.md has them, in 80 columns."""
    code, out, _ = here(capsys, "zones")
    assert code == 0
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "v5e    v5litepod-1, v5litepod-4," in out
    assert "\n       v5litepod-" in out, "a line that goes on is indented"
    assert "us-central1-f*" in out
    assert "not in Google's public list" in out
    assert "0.32 to 0.37" in out


def test_the_help_shows_that_the_type_is_optional(capsys):
    """As in the first test: without it all types are listed."""
    assert "zones [OPTIONS] [TYPE]" in here(capsys, "zones", "--help")[1]


def test_of_one_type_each_zone_has_the_price_an_hour(capsys):
    """That of the whole slice, and what a job finds there."""
    code, out, _ = here(capsys, "zones", "v5litepod-8")
    catalog = load_catalog()
    assert code == 0
    assert out.startswith("v5litepod-8: 8 chips (2x4), 1 worker, v2-alpha-tpuv5-lite with Python 3.10\n")
    for zone in catalog.zones_of("v5litepod-8"):
        assert zone in out
    usd = catalog.tpu_price("v5litepod-8", "us-central1-a", spot=False)
    assert f"{usd:.2f}" in next(line for line in out.splitlines() if "us-central1-a" in line)


@pytest.mark.parametrize("word", ["v5e", "V5E", "v5litepod"])
def test_a_generation_has_its_types_and_its_zones(word, capsys):
    """People know the generation before they know a type of it; no other generation is listed."""
    code, out, _ = here(capsys, "zones", word)
    catalog = load_catalog()
    assert code == 0
    for name in catalog.served():
        assert (f"{name}," in out or f"{name}\n" in out) == (catalog.accelerators[name].generation == "v5e")
    for zone in catalog.zones_of("v5litepod-8"):
        assert zone in out
    assert "v6e" not in out
    found = document(here(capsys, "zones", word, "--json")[1])
    assert (found["type"], found["generation"]) == (None, "v5e")
    assert {one["generation"] for one in found["offers"]} == {"v5e"}


def test_programs_get_each_region_with_its_prices(capsys):
    """Per chip and hour; null where no table has one."""
    code, out, _ = here(capsys, "zones", "v3-8", "--json")
    found = document(out)
    assert (code, found["kind"], found["type"]) == (0, "zones", "v3-8")
    assert {zone for one in found["offers"] for zone in one["zones"]} == set(load_catalog().zones_of("v3-8"))
    assert {one["generation"] for one in found["offers"]} == {"v3"}
    whole = document(here(capsys, "zones", "--json")[1])
    assert whole["type"] is None
    assert {one["generation"] for one in whole["offers"]} > {"v3", "v5e"}


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("v5litepod-9", "did you mean"),
        ("h100", "all types: tpuctl zones"),
        ("v5", "did you mean v5e or v5p?"),
        ("v6", "did you mean v6e?"),
    ],
)
def test_a_wrong_type_is_refused_with_what_is_near(word, hint, capsys):
    """Before anything else."""
    code, _, err = here(capsys, "zones", word)
    assert code == 2
    assert "is not a type of the Cloud TPU API" in err
    assert hint in " ".join(err.split())
