"""Show the findings of `tpuctl doctor`, as text of at most 80 columns or as JSON."""

from collections.abc import Sequence

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.advice.doctor.every_check import healthy
from orchestrator.advice.doctor.facts import Group, Health, HealthFinding
from orchestrator.cli.console import page, print_json

WIDTH = 80
EMULATED = "Google Cloud, as the local cloud emulates it (your own project was not checked)"
_STYLES = {Health.OK: "green", Health.WARN: "yellow", Health.BAD: "bold red", Health.UNKNOWN: "cyan"}
_WORDS = {
    Health.OK: "passed", Health.WARN: "to check", Health.BAD: "failed", Health.UNKNOWN: "unknown",
}  # fmt: skip


def show(
    findings: Sequence[HealthFinding], done: Sequence[str], *, as_json: bool, unbilled: bool = False
) -> None:
    """
    Print the findings and what was repaired to stdout.

    *unbilled* means that the local cloud answered in Google's place, so that nothing is known about the
    account.
    """
    if as_json:
        counts = {health.value: _number(findings, health) for health in Health}
        checks = [finding.as_dict() for finding in findings]
        print_json(
            "doctor", {"ok": healthy(findings), "counts": counts, "checks": checks, "fixed": list(done)}
        )
        return
    with page() as console:
        render(findings, done, console, unbilled=unbilled)


def render(
    findings: Sequence[HealthFinding], done: Sequence[str], console: Console, *, unbilled: bool = False
) -> None:
    """Print the findings on *console*, by group, with the sum at the end."""
    width = min(WIDTH, console.width)
    for text in done:
        console.print(f"fixed: {text}", style="green", markup=False, width=width, overflow="fold")
    for group in Group:
        title = EMULATED if unbilled and group is Group.GOOGLE else group.value
        console.print(title, style="bold", markup=False, width=width)
        _group([finding for finding in findings if finding.group is group], console, width)
        console.print()
    parts = [f"{n} {_WORDS[health]}" for health in Health if (n := _number(findings, health))]
    style = "bold green" if healthy(findings) else "bold red"
    console.print(", ".join(parts), style=style, markup=False, width=width)


def _group(findings: Sequence[HealthFinding], console: Console, width: int) -> None:
    for finding in findings:
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(width=9)
        table.add_column(width=15)
        table.add_column(overflow="fold")
        word = Text(f"  {finding.health.value}", _STYLES[finding.health])
        table.add_row(word, finding.check, Text(finding.text))
        console.print(table, width=width)
        if finding.fix:
            fix = Text(f"fix: {finding.fix}", overflow="fold")
            console.print(Padding(fix, (0, 0, 0, 4), expand=False), width=width)


def _number(findings: Sequence[HealthFinding], health: Health) -> int:
    return sum(finding.health is health for finding in findings)
