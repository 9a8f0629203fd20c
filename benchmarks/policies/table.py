"""The tables of a run, as Markdown that also reads well on a terminal."""

from collections.abc import Sequence

from benchmarks.policies.replay import POLICIES, RACE, ComparisonResult, ReplayResult


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; all columns but the first hold numbers."""
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    rule = ["-" * widths[0], *("-" * (width - 1) + ":" for width in widths[1:])]
    lines = [
        [
            row[0].ljust(widths[0]),
            *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)),
        ]
        for row in [head, rule, *rows]
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def ratio(top: float, bottom: float, digits: int = 3) -> str:
    """Return a ratio, or a dash where there is nothing to divide by."""
    return f"{top / bottom:.{digits}f}" if bottom else "-"


def delays(result: ReplayResult, *shares: float) -> list[str]:
    """Return percentiles of the policy-added delay in seconds."""
    return [f"{result.delay(share):,.0f}" if result.recoveries else "-" for share in shares]


def in_full(result: ComparisonResult) -> str:
    """Return all figures of one comparison."""
    rows = []
    for name, r in result.by_policy.items():
        lowest, highest = result.between(name)
        rows.append(
            (
                name, f"{result.useful(name):.3f}", f"{result.reached(name):.3f}",
                f"{lowest:.3f} to {highest:.3f}", ratio(r.useful, r.paid), f"{r.usd_hour:.3f}",
                *delays(r, 0.5, 0.9, 0.99), f"{r.creates / r.wall * 86400:,.0f}",
            )
        )  # fmt: skip
    head = (
        "policy", "kept/wall", "kept/omniscient", "its parts", "kept/paid", "USD per kept hour", "delay p50",
        "p90", "p99", "creates a day",
    )  # fmt: skip
    return table(head, rows)


def side_by_side(results: Sequence[ComparisonResult]) -> str:
    """Return kept/omniscient of every policy in every comparison, of ours with the worst and the best part."""
    rows = [(name, *(f"{o.reached(name):.3f}" for o in results)) for name in results[0].by_policy]
    parts = [o.between(RACE) for o in results]
    spread = (f"{RACE}: its parts", *(f"{lowest:.3f} to {highest:.3f}" for lowest, highest in parts))
    bounds = ("omniscient itself, of wall-clock time", *(f"{o.bound:.3f}" for o in results))
    return table(("kept/omniscient", *(o.comparison.title for o in results)), [*rows, spread, bounds])


def prices_and_delays(results: Sequence[ComparisonResult]) -> str:
    """Return for each comparison what an hour of progress costs with ours and the cheapest other, and delays."""
    rows = []
    for o in results:
        ours = o.by_policy[RACE]
        usd, other = cheapest(o)
        rows.append(
            (o.comparison.title, f"{ours.usd_hour:.3f}", f"{usd:.3f}", other, *delays(ours, 0.5, 0.9, 0.99))
        )
    head = ("market", "USD per kept hour", "cheapest other", "which", "delay p50", "p90", "p99")
    return table(head, rows)


def cheapest(result: ComparisonResult) -> tuple[float, str]:
    """Return the lowest price of a kept hour among the other tools that use all zones, and whose it is."""
    others = [
        (result.by_policy[policy.name].usd_hour, policy.name)
        for policy in POLICIES
        if policy.each == "all" and not policy.name.startswith("tpuctl") and policy.name in result.by_policy
    ]
    return min(others, default=(float("nan"), "-"))


def under_stress(result: ComparisonResult) -> str:
    """Return what counts where most requests are refused: requests for each machine, and the time to it."""
    rows = [
        (
            name, f"{result.useful(name):.3f}", ratio(r.useful, r.paid), ratio(r.creates, r.used, 1),
            ratio(r.waited, r.soonest, 3), *delays(r, 0.5, 0.99), f"{r.creates / r.wall * 86400:,.0f}",
        )
        for name, r in result.by_policy.items()
    ]  # fmt: skip
    head = (
        "policy", "kept/wall", "kept/paid", "creates for a machine used", "wait/shortest", "delay p50", "p99",
        "creates a day",
    )  # fmt: skip
    return table(head, rows)
