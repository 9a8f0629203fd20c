"""The tables of a run, as Markdown that also reads well on a terminal."""

from collections.abc import Sequence

from benchmarks.policies.replay import POLICIES, RACE, Outcome, Result


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


def delays(result: Result, *shares: float) -> list[str]:
    """Return percentiles of the policy-added delay in seconds."""
    return [f"{result.delay(share):,.0f}" if result.recoveries else "-" for share in shares]


def in_full(outcome: Outcome) -> str:
    """Return all figures of one scene."""
    rows = []
    for name, r in outcome.results.items():
        lowest, highest = outcome.between(name)
        rows.append(
            (
                name, f"{outcome.useful(name):.3f}", f"{outcome.reached(name):.3f}",
                f"{lowest:.3f} to {highest:.3f}", ratio(r.useful, r.paid), f"{r.usd_hour:.3f}",
                *delays(r, 0.5, 0.9, 0.99), f"{r.creates / r.wall * 86400:,.0f}",
            )
        )  # fmt: skip
    head = (
        "policy", "kept/wall", "kept/omniscient", "its parts", "kept/paid", "USD per kept hour", "delay p50",
        "p90", "p99", "creates a day",
    )  # fmt: skip
    return table(head, rows)


def side_by_side(outcomes: Sequence[Outcome]) -> str:
    """Return kept/omniscient of every policy in every scene, of ours with the worst and the best part."""
    rows = [(name, *(f"{o.reached(name):.3f}" for o in outcomes)) for name in outcomes[0].results]
    parts = [o.between(RACE) for o in outcomes]
    spread = (f"{RACE}: its parts", *(f"{lowest:.3f} to {highest:.3f}" for lowest, highest in parts))
    bounds = ("omniscient itself, of wall-clock time", *(f"{o.bound:.3f}" for o in outcomes))
    return table(("kept/omniscient", *(o.scene.title for o in outcomes)), [*rows, spread, bounds])


def prices_and_delays(outcomes: Sequence[Outcome]) -> str:
    """Return for each scene what ours pays for an hour of progress beside the cheapest other, and its delays."""
    rows = []
    for o in outcomes:
        ours = o.results[RACE]
        usd, other = cheapest(o)
        rows.append(
            (o.scene.title, f"{ours.usd_hour:.3f}", f"{usd:.3f}", other, *delays(ours, 0.5, 0.9, 0.99))
        )
    head = ("market", "USD per kept hour", "cheapest other", "which", "delay p50", "p90", "p99")
    return table(head, rows)


def cheapest(outcome: Outcome) -> tuple[float, str]:
    """Return the lowest price of a kept hour among the other tools that use all zones, and whose it is."""
    others = [
        (outcome.results[policy.name].usd_hour, policy.name)
        for policy in POLICIES
        if policy.each == "all" and not policy.name.startswith("tpuctl") and policy.name in outcome.results
    ]
    return min(others, default=(float("nan"), "-"))


def under_stress(outcome: Outcome) -> str:
    """Return what counts where most requests are refused: requests for each machine, and the time to it."""
    rows = [
        (
            name, f"{outcome.useful(name):.3f}", ratio(r.useful, r.paid), ratio(r.creates, r.used, 1),
            ratio(r.waited, r.soonest, 3), *delays(r, 0.5, 0.99), f"{r.creates / r.wall * 86400:,.0f}",
        )
        for name, r in outcome.results.items()
    ]  # fmt: skip
    head = (
        "policy", "kept/wall", "kept/paid", "creates for a machine used", "wait/shortest", "delay p50", "p99",
        "creates a day",
    )  # fmt: skip
    return table(head, rows)
