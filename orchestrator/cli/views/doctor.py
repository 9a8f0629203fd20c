"""Show the findings of `tpuctl doctor`, as text of at most 80 columns or as JSON."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from orchestrator.advice.doctor.every_check import healthy
from orchestrator.advice.doctor.facts import Group, Health, HealthFinding
from orchestrator.cli.console import page, print_json, wrapped

WIDTH = 80
_FIX = " " * 4
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


def together(findings: Sequence[HealthFinding]) -> list[HealthFinding]:
    """Return the findings with those that have the same answer as one, in the place of the first of them."""
    alike: dict[tuple[Health, str, str], list[HealthFinding]] = {}
    for finding in findings:
        own = "" if finding.health is Health.UNKNOWN else finding.check
        alike.setdefault((finding.health, finding.text, finding.fix + own), []).append(finding)
    return [
        replace(one, check=f"{len(same)} checks", text=f"{one.text}: {', '.join(f.check for f in same)}")
        if len(same) > 1
        else one
        for same in alike.values()
        for one in same[:1]
    ]


def _group(findings: Sequence[HealthFinding], console: Console, width: int) -> None:
    for finding in together(findings):
        style = _STYLES[finding.health]
        head = f"  {finding.health.value:<7} {finding.check:<15} "
        # A path or the name of a quota is copied whole: if it has no room beside the check, it stands below.
        beside = max(map(len, finding.text.split()), default=0) <= width - len(head)
        lines = [head + finding.text] if beside else [head.rstrip(), f"{_FIX}{finding.text}"]
        indent = " " * len(head) if beside else _FIX
        for number, line in enumerate(wrapped(lines, width, indent, break_long=False)):
            text = Text(line)
            if not number:
                text.stylize(style, 2, 2 + len(finding.health.value))
            console.print(text, soft_wrap=True)
        for line in wrapped([f"{_FIX}fix: {finding.fix}"] * bool(finding.fix), width, _FIX, break_long=False):
            console.print(Text(line), soft_wrap=True)


def _number(findings: Sequence[HealthFinding], health: Health) -> int:
    return sum(finding.health is health for finding in findings)
