"""Show which zones offer which types of TPU."""

from rich.console import Console
from rich.table import Table
from rich.text import Text

from orchestrator.app.zones import ListedZones
from orchestrator.cli.console import page, print_json, wrapped
from orchestrator.domain.catalog import Accelerator, Catalog
from orchestrator.pricing.priced_zones import PricedZones

WIDTH = 80
FEW = 8
"""Types of one generation that are named one by one."""


def show(listed: ListedZones, *, as_json: bool) -> None:
    """Print zones and prices to stdout, as text or JSON."""
    if as_json:
        print_json("zones", {
            "type": listed.tpu_type or None, "generation": listed.generation or None,
            "offers": [one.as_dict() for one in listed.offers], "date": listed.catalog.dates["tpu_prices"],
        })  # fmt: skip
        return
    with page() as console:
        render(listed, console)


def render(listed: ListedZones, console: Console) -> None:
    """Print zones and prices on *console*; the price is that of the type, or of a chip without one."""
    catalog, found = listed.catalog, listed.offers
    kind, width = catalog.accelerator(listed.tpu_type), min(WIDTH, console.width)
    for line in [_of_type(kind, catalog)] if kind else _types(catalog, listed.generation):
        for part in wrapped([line], width, " " * 7):
            console.print(Text(part, overflow="fold"), width=width)
    console.print()
    console.print(_table(found, kind.chips if kind else 1, of_chip=kind is None), width=width)
    console.print()
    if any(one.unlisted for one in found):
        console.print(
            "* not in Google's public list: some projects cannot use it.", markup=False, width=width
        )
    date = catalog.dates["tpu_prices"]
    console.print(f"TPU prices of {date}. An estimate, not a bill; docs/zones.md.", markup=False, width=width)


def _of_type(kind: Accelerator, catalog: Catalog) -> str:
    workers = "1 worker" if kind.hosts == 1 else f"{kind.hosts} workers"
    chips = "1 chip" if kind.chips == 1 else f"{kind.chips} chips"
    python = catalog.python_of(kind.runtime or "")
    image = f", {kind.runtime}{f' with Python {python}' if python else ''}" if kind.runtime else ""
    return f"{kind.type}: {chips} ({kind.topology}), {workers}{image}"


def _types(catalog: Catalog, wanted: str) -> list[str]:
    """Return a line for each generation with its types, the smallest first; all types of the *wanted* one."""
    types: dict[str, list[Accelerator]] = {}
    for name in catalog.served():
        kind = catalog.accelerators[name]
        types.setdefault(kind.generation, []).append(kind)
    lines = []
    for generation, kinds in types.items():
        if wanted not in {"", generation}:
            continue
        names = [one.type for one in sorted(kinds, key=lambda one: one.chips)]
        shown = ", ".join(names) if wanted or len(names) <= FEW else f"{', '.join(names[:3])} ... {names[-1]}"
        lines.append(f"{generation:<6} {shown}")
    return lines


def _table(found: tuple[PricedZones, ...], chips: int, *, of_chip: bool) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    if of_chip:
        table.add_column("generation")
    table.add_column("zones", overflow="fold")
    unit = "USD per chip and hour" if of_chip else "USD an hour"
    table.add_column(f"spot, {unit}", justify="right", max_width=16)
    table.add_column("on demand", justify="right")
    for one in found:
        zones = ", ".join(f"{zone}{'*' if zone in one.unlisted else ''}" for zone in one.zones)
        prices = (_usd(one.spot, one.spot_upper, chips), _usd(one.on_demand, one.on_demand, chips))
        table.add_row(*([one.generation] if of_chip else []), zones, *prices)
    return table


def _usd(low: float | None, high: float | None, chips: int) -> str:
    known = [f"{usd * chips:.2f}" for usd in (low, high) if usd is not None]
    return " to ".join(dict.fromkeys(known)) or "not known"
