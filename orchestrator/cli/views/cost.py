"""Show the spending of a deployment as text of at most 80 columns."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from orchestrator.app.cost import Cost
from orchestrator.cli.console import page, print_json
from orchestrator.domain.amounts import span_text
from orchestrator.pricing.spending import Spending

WIDTH = 80
LAST_DAYS = 14


def show(cost: Cost, *, rehearsed: bool, as_json: bool) -> None:
    """Print what was spent; *rehearsed* says that nothing of it is billed."""
    if as_json:
        print_json("cost", cost.as_dict())
        return
    with page() as console:
        render(cost.name, cost.spending, cost.preemptions, console, rehearsed=rehearsed)


def render(name: str, found: Spending, preemptions: int, console: Console, *, rehearsed: bool) -> None:
    """Print the spending on *console*."""
    width = min(WIDTH, console.width)
    verb = "would have cost" if rehearsed else "has cost"
    console.print(f"{name} {verb} about {found.usd:.2f} USD so far", style="bold", markup=False, width=width)
    for table in _tables(found):
        console.print()
        console.print(table, width=width)
    console.print()
    for line in _sentences(found, preemptions):
        console.print(line, markup=False, width=width)


def _tables(found: Spending) -> list[Table]:
    if not found.items:
        return []
    tables = [_items(found), _shares("use", found.uses, found.usd)]
    if len(found.zones) > 1:
        tables.append(_shares("zone", found.zones, found.usd))
    days = dict(list(found.days.items())[-LAST_DAYS:])
    return [*tables, _shares("day (UTC)", days, found.usd)]


def _items(found: Spending) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("resource", overflow="fold")
    table.add_column("zone")
    for title in ("hours", "USD", "on demand"):
        table.add_column(title, justify="right")
    for item in found.items:
        count = f" ({item.machines} machines)" if item.machines > 1 else ""
        cells = (_usd(item.usd), _usd(item.ondemand_usd))
        table.add_row(f"{item.what}{count}", item.zone, f"{item.seconds / 3600:.2f}", *cells)
    table.add_row("sum", "", "", _usd(found.usd), _usd(found.ondemand_usd), style="bold")
    return table


def _shares(title: str, sums: Mapping[str, float], whole: float) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(title, min_width=12)
    table.add_column("USD", justify="right")
    table.add_column("share", justify="right")
    for name, usd in sums.items():
        table.add_row(name, _usd(usd), f"{usd / whole:.0%}" if whole else "-")
    return table


def _sentences(found: Spending, preemptions: int) -> list[str]:
    lines = [
        f"Wasted by {preemptions} preemption{'' if preemptions == 1 else 's'}: {_usd(found.wasted_usd)} USD."
    ]
    lines.append(f"What exists now costs {_usd(found.rate_usd)} USD per hour.")
    if found.to_ttl_usd is not None and found.ttl_left is not None:
        remaining = span_text(found.ttl_left)
        lines.append(
            f"To the end of ttl ({remaining} left), if all of it runs: {found.to_ttl_usd:.2f} USD in all."
        )
    if found.budget_usd is not None:
        lasts = "" if found.budget_lasts is None else f" lasts for {span_text(found.budget_lasts)} of that"
        spent = f"{found.most_usd / found.budget_usd:.0%} spent at the upper prices, by which it stops"
        lines.append(f"The budget of {found.budget_usd:g} USD ({spent}){lasts}.")
    if found.unknown:
        lines.append(f"No price is known for: {', '.join(found.unknown)}. The sums leave it out.")
    return [*lines, f"{found.prices.date_text}. An estimate, not a bill.", _storage(found)]


def _storage(found: Spending) -> str:
    without = "Files deleted before, requests and traffic are in no sum."
    if not found.storage_gib:
        return f"Storage is not in the sums. {without}"
    stored = f"the {found.storage_gib:.3f} GiB that the bucket holds now, since they were written"
    return f"Storage is {stored}; the budget does not count it. {without}"


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}" if usd < 1 else f"{usd:.2f}"
