"""Show the findings of `tpuctl check`, as text of at most 80 columns or as JSON."""

from collections.abc import Sequence
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from orchestrator.advice.check.findings import CheckFinding, SourceFacts
from orchestrator.app.check import Checked
from orchestrator.cli.console import page, print_json
from orchestrator.domain.level import Level

WIDTH = 80
_HEADINGS = {
    Level.STOP: ("Stop: do not start it like this", "bold red"),
    Level.WARN: ("Warnings: likely to cost data, time or money", "bold yellow"),
    Level.NOTE: ("Notes: good to know", "bold cyan"),
}


def body(checked: Checked) -> dict[str, Any]:
    """Return the findings as in `--json`."""
    findings = checked.findings
    return {
        "ok": not checked.stops,
        "counts": {level.value: _number(findings, level) for level in _HEADINGS},
        "findings": [finding.as_dict() for finding in findings],
        "unread_files": list(checked.facts.unread),
    }


def show(checked: Checked, *, as_json: bool) -> None:
    """Print the findings to stdout, as text or JSON."""
    if as_json:
        print_json("check", {"name": checked.name, "python": checked.python, **body(checked)})
        return
    with page() as console:
        render(checked, console)


def render(checked: Checked, console: Console) -> None:
    """Print all findings on *console*, grouped by level."""
    findings, width = checked.findings, min(WIDTH, console.width)
    console.print(f"Check of {checked.name}: {count(findings)}", style="bold", markup=False, width=width)
    if checked.python:
        console.print(f"Python of the job: {checked.python}", markup=False, width=width)
    for level, (heading, style) in _HEADINGS.items():
        group = [finding for finding in findings if finding.level is level]
        if group:
            console.print()
            console.print(heading, style=style, markup=False, width=width)
        for finding in group:
            _print(finding, console, width)
    _unread(checked.facts, console, width)


def render_short(checked: Checked, console: Console) -> None:
    """Print one line for each rule with more than notes, at the end of `tpuctl plan`."""
    findings, width = checked.findings, min(WIDTH, console.width)
    console.print()
    console.print(f"Check: {count(findings)}", style="bold", markup=False, width=width)
    groups: dict[tuple[Level, str], list[CheckFinding]] = {}
    for finding in findings:
        groups.setdefault((finding.level, finding.rule), []).append(finding)
    for (level, rule), (first, *others) in groups.items():
        if level is not Level.NOTE:
            more = f" (and {len(others)} more)" if others else ""
            # Whole, and with the remedy: who reads only the plan would meet a failed job without it.
            row = Table.grid(padding=(0, 2, 0, 0))
            row.add_row(f"  {level.value:<4}", Text(f"{rule}{more}: {first.where}: {first.message}"))
            row.add_row("", Text(f"change: {first.hint}"))
            console.print(row, width=width)
    if findings:
        console.print("  All details: tpuctl check", markup=False, width=width)
    _unread(checked.facts, console, width)


def count(findings: Sequence[CheckFinding]) -> str:
    """Return a line with the number of findings of each level."""
    words = {
        Level.STOP: ("stop", "stops"),
        Level.WARN: ("warning", "warnings"),
        Level.NOTE: ("note", "notes"),
    }
    parts = [f"{n} {words[level][n > 1]}" for level in words if (n := _number(findings, level))]
    return ", ".join(parts) or "no problem found"


def _print(finding: CheckFinding, console: Console, width: int) -> None:
    console.print(Text(f"  {finding.rule}  {finding.where}", "bold", overflow="fold"), width=width)
    for label, text in (("", finding.message), ("change: ", finding.hint)):
        console.print(
            Padding(Text(f"{label}{text}", overflow="fold"), (0, 0, 0, 4), expand=False), width=width
        )


def _unread(facts: SourceFacts, console: Console, width: int) -> None:
    if facts.unread:
        names = ", ".join(facts.unread[:3]) + (", ..." if len(facts.unread) > 3 else "")
        text = f"Not checked ({len(facts.unread)}; too large, or not Python 3): {names}"
        console.print(text, markup=False, width=width, overflow="fold")


def _number(findings: Sequence[CheckFinding], level: Level) -> int:
    return sum(finding.level is level for finding in findings)
