"""docs/zones.md lists the types of TPUs, with their zones and prices, as the shipped tables have them."""

import os
import re
from collections import defaultdict

from orchestrator.config.shipped_catalog import load_catalog
from orchestrator.domain.names import region_of
from tests.cli.cli_kit import ROOT

PAGE = ROOT / "docs" / "zones.md"
BEGIN, END = "<!-- types: begin (tests/docs/test_types.py) -->\n\n", "\n<!-- types: end -->"
FEW = 12
"""Types of one generation that are named one by one."""


def shown(*prices):
    """Return one price, or both ends where the sources differ."""
    known = [f"{price:.2f}" for price in prices if price is not None]
    return " to ".join(dict.fromkeys(known)) or "not known"


def table():
    """Return the two tables of the page."""
    catalog = load_catalog()
    types, zones = defaultdict(list), defaultdict(set)
    for one in catalog.accelerators.values():
        types[one.generation].append(one)
        for zone in catalog.zones_of(one.type):
            zones[one.generation, region_of(zone)].add(zone)
    lines = ["| generation | types |", "| --- | --- |"]
    for generation, ones in types.items():
        names = [f"`{one.type}`" for one in sorted(ones, key=lambda one: one.chips)]
        text = ", ".join(names) if len(names) <= FEW else f"{names[0]}, {names[1]} and so on to {names[-1]}"
        lines.append(f"| {generation} | {text} |")
    lines += [
        "",
        "| generation | zones | spot, USD per chip and hour | on demand |",
        "| --- | --- | --- | --- |",
    ]
    for (generation, _region), found in sorted(zones.items()):
        there = [one for one in types[generation] if found.intersection(catalog.zones_of(one.type))]
        first = min(there, key=lambda one: one.chips)
        zone = min(found.intersection(catalog.zones_of(first.type)))
        spot, most, full = (
            None if usd is None else usd / first.chips
            for usd in (
                catalog.tpu_price(first.type, zone, spot=True),
                catalog.tpu_price(first.type, zone, spot=True, upper=True),
                catalog.tpu_price(first.type, zone, spot=False),
            )
        )
        names = ", ".join(
            f"{one}{'' if catalog.is_documented(first.type, one) else ' (*)'}" for one in sorted(found)
        )
        lines.append(f"| {generation} | {names} | {shown(spot, most)} | {shown(full)} |")
    return "\n".join(lines) + "\n"


def test_the_types_of_the_page_are_those_of_the_tables():
    """TPUCTL_UPDATE_GOLDEN=1 writes them again."""
    text = PAGE.read_text()
    if os.environ.get("TPUCTL_UPDATE_GOLDEN"):
        PAGE.write_text(
            re.sub(
                f"{re.escape(BEGIN)}.*?{re.escape(END)}",
                lambda _: BEGIN + table() + END,
                text,
                flags=re.DOTALL,
            )
        )
    assert BEGIN + table() + END in PAGE.read_text()
