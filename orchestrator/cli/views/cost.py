"""Show the cost of a deployment as text of at most 80 columns."""

from collections.abc import Mapping

from rich.console import Console
from rich.table import Table

from orchestrator.app.deployment.earlier_costs import Cost
from orchestrator.cli.console import page, print_json
from orchestrator.domain.text.amounts import saved_text, span_text, ttl_text, usd_range_text, usd_text
from orchestrator.pricing.cost_breakdown import CostBreakdown
from orchestrator.pricing.use_spans import Use
from orchestrator.report.summary import USE_TEXTS

WIDTH = 80
LAST_DAYS = 14


def show(cost: Cost, *, unbilled: bool, as_json: bool) -> None:
    """Print the cost; *unbilled* is true on the local cloud."""
    if as_json:
        print_json("cost", cost.as_dict())
        return
    with page() as console:
        render(cost, console, unbilled=unbilled)


def cost_text(found: CostBreakdown, *, unbilled: bool) -> str:
    """Return a sentence with the cost, and the cost of the same on demand."""
    who = "On Google Cloud it would have cost" if unbilled else "It cost"
    if found.unpriced:
        return f"{who} at least {usd_text(found.usd)}; no price is known for: {', '.join(found.unpriced)}."
    share = saved_text(found.usd, found.counted_upper_usd, found.on_demand_usd)
    less = f"; on demand {usd_text(found.on_demand_usd)}, so {share} saved" if share else ""
    spent = usd_range_text(found.usd, found.upper_usd)
    return f"{who} about {spent}{less}. An estimate; details: tpuctl cost"


def render(cost: Cost, console: Console, *, unbilled: bool) -> None:
    """Print the cost on *console*."""
    width, found, preemptions = min(WIDTH, console.width), cost.breakdown, cost.preemptions
    verb = "would have cost" if unbilled else "has cost"
    known = usd_range_text(found.usd, found.upper_usd)
    sum_text = f"at least {usd_text(found.usd)}" if found.unpriced else f"about {known}"
    end = f"; {cost.state.phrase}{f' on {cost.deleted_day}' if cost.deleted_at else ''}"
    title = f"{cost.name} {verb} {sum_text}{'' if cost.deleted_at else ' so far'}{end}"
    if not found.items:
        title = f"{cost.name} has cost nothing yet{end}"
    console.print(title, style="bold", markup=False, width=width)
    # At once: a user who has started over looks for the sum of before.
    for line in _earlier(cost):
        console.print(line, markup=False, width=width)
    for table in _tables(found):
        console.print()
        console.print(table, width=width)
    console.print()
    for line in _sentences(found, preemptions):
        console.print(line, markup=False, width=width)


def _earlier(cost: Cost) -> list[str]:
    """Return lines about the cost of earlier deployments of the name."""
    if not cost.earlier:
        return []
    count, usd = len(cost.earlier), sum(one.breakdown.usd for one in cost.earlier)
    many = "an earlier deployment" if count == 1 else f"{count} earlier deployments"
    return [f"Not in it: {usd_text(usd)} for {many} of this name, deleted on {cost.earlier[-1].deleted_day}."]


def _tables(found: CostBreakdown) -> list[Table]:
    if not found.items:
        return []
    uses = {use.value: found.uses[use.value] for use in Use if use.value in found.uses}
    meanings = {use.value: text for use, text in USE_TEXTS.items()}
    tables = [_items(found), _shares("use", uses, found.usd, meanings)]
    if len(found.zones) > 1:
        tables.append(_shares("zone, region", found.zones, found.usd))
    days = dict(list(found.days.items())[-LAST_DAYS:])
    return [*tables, _shares("day (UTC)", days, found.usd)]


def _items(found: CostBreakdown) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("resource", overflow="fold")
    # The bucket's storage has a region.
    table.add_column("zone, region")
    for title in ("time", "USD", "on demand"):
        table.add_column(title, justify="right")
    for item in found.items:
        count = f" ({item.machines_count} machines)" if item.machines_count > 1 else ""
        cells = (_usd(item.usd), _usd(item.on_demand_usd))
        table.add_row(f"{item.what}{count}", item.zone, span_text(item.machine_seconds), *cells)
    table.add_row("sum", "", "", _usd(found.usd), _usd(found.on_demand_usd), style="bold")
    return table


def _shares(
    title: str, sums: Mapping[str, float], whole: float, meanings: Mapping[str, str] | None = None
) -> Table:
    """Return a table of parts of the cost; *meanings* says what each name means."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(title, min_width=12)
    table.add_column("USD", justify="right")
    table.add_column("of the cost", justify="right")
    if meanings:
        table.add_column("what it paid for", overflow="fold")
    for name, usd in sums.items():
        meaning = (meanings[name],) if meanings else ()
        table.add_row(name, _usd(usd), f"{usd / whole:.0%}" if whole else "-", *meaning)
    return table


def _sentences(found: CostBreakdown, preemptions: int) -> list[str]:
    count = f"{preemptions} preemption{'' if preemptions == 1 else 's'}"
    differ = found.counted_upper_usd > 1.01 * found.usd
    lowest = " at the lowest prices" if differ else ""
    lines = (
        [f"Wasted by {count}: {usd_text(found.preemptions_usd)}{lowest} (lost and recovering)."]
        if preemptions or found.preemptions_usd
        else []
    )
    if preemptions:
        lines.append(
            "Google bills nothing for a TPU that it preempts in its first minute; it is counted here."
        )
    share = "" if found.unpriced else saved_text(found.usd, found.counted_upper_usd, found.on_demand_usd)
    if share:
        saved = usd_range_text(found.lower_saved_usd or 0.0, found.saved_usd or 0.0)
        lines.append(f"Saved against on demand: {saved} ({share}).")
    if found.usd_hour:
        lines.append(f"What exists now costs {usd_range_text(found.usd_hour, found.upper_usd_hour)} an hour.")
    elif found.items:
        lines.append("Nothing exists now that is billed by the hour.")
    if found.to_ttl_upper_usd is not None and found.ttl_remaining_s is not None:
        remaining = f"{span_text(found.ttl_remaining_s)} left"
        lines.append(f"{ttl_text(remaining, found.to_ttl_upper_usd)} but including the cost so far.")
    if found.budget_usd is not None:
        lasts = (
            "" if found.budget_lasts_s is None else f", and lasts for {span_text(found.budget_lasts_s)} more"
        )
        spent = (
            f"{found.machines_upper_usd / found.budget_usd:.0%} spent at the upper prices, by which it stops"
        )
        lines.append(f"The budget of {found.budget_usd:g} USD is {spent}{lasts}.")
    if differ:
        highest = usd_text(found.counted_upper_usd)
        lines.append(
            f"Public price lists differ. The tables use the lowest prices; at the highest, the sum is {highest}."
        )
    lines += [end.text for end in found.unwatched_ends]
    if found.unpriced:
        lines.append(f"No price is known for: {', '.join(found.unpriced)}. The sums leave it out.")
    return [*lines, f"{found.prices.date_text}. An estimate, not a bill.", _storage(found)]


def _storage(found: CostBreakdown) -> str:
    without = "Deleted files, requests and network traffic are not included."
    if not found.storage_gib:
        return f"Storage is not included. {without}"
    stored = f"included for the {found.storage_gib:.3f} GiB now in the bucket, from the time of upload"
    month = found.caches_gib * (found.prices.storage_usd_gib_month or 0.0)
    caches = f" {found.caches_gib:.3f} GiB of that is caches for the next machine, {usd_text(month)} a month."
    limit = "" if found.budget_usd is None else " The budget does not count it."
    return f"Storage is {stored}.{limit}{caches if found.caches_gib else ''} {without}"


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.4f}" if usd < 1 else f"{usd:.2f}"
