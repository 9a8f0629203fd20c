"""Show the findings of `tpuctl doctor`, as text of at most 80 columns or as JSON."""

from collections.abc import Sequence
from dataclasses import replace

from rich.console import Console
from rich.text import Text

from orchestrator.advice.doctor.facts import DoctorFinding, Group
from orchestrator.cli.console import page, print_json, wrapped
from orchestrator.domain.level import Level, stops

WIDTH = 80
_FIX = " " * 4
EMULATED = "Google Cloud, as the local cloud emulates it (your own project was not checked)"
_STYLES = {
    Level.OK: "green", Level.WARN: "yellow", Level.STOP: "bold red", Level.UNKNOWN: "cyan",
}  # fmt: skip
_WORDS = {
    Level.OK: "passed", Level.WARN: "to check", Level.STOP: "failed", Level.UNKNOWN: "unknown",
}  # fmt: skip


def show(
    findings: Sequence[DoctorFinding], done: Sequence[str], *, as_json: bool, unbilled: bool = False
) -> None:
    """
    Print the findings and what was repaired to stdout.

    *unbilled* means that the local cloud answered in Google's place, so that nothing is known about the
    account.
    """
    if as_json:
        counts = {level.value: _number(findings, level) for level in _WORDS}
        found = [finding.as_dict() for finding in findings]
        ok = not stops(finding.level for finding in findings)
        print_json("doctor", {"ok": ok, "counts": counts, "findings": found, "fixed": list(done)})
        return
    with page() as console:
        render(findings, done, console, unbilled=unbilled)


def render(
    findings: Sequence[DoctorFinding], done: Sequence[str], console: Console, *, unbilled: bool = False
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
    parts = [f"{n} {_WORDS[level]}" for level in _WORDS if (n := _number(findings, level))]
    style = "bold red" if stops(finding.level for finding in findings) else "bold green"
    console.print(", ".join(parts), style=style, markup=False, width=width)


def together(findings: Sequence[DoctorFinding]) -> list[DoctorFinding]:
    """Return the findings with those that have the same answer as one, in the place of the first of them."""
    alike: dict[tuple[Level, str, str], list[DoctorFinding]] = {}
    for finding in findings:
        own = "" if finding.level is Level.UNKNOWN else finding.rule
        alike.setdefault((finding.level, finding.message, finding.hint + own), []).append(finding)
    return [
        replace(one, rule=f"{len(same)} rules", message=f"{one.message}: {', '.join(f.rule for f in same)}")
        if len(same) > 1
        else one
        for same in alike.values()
        for one in same[:1]
    ]


def _group(findings: Sequence[DoctorFinding], console: Console, width: int) -> None:
    for finding in together(findings):
        style = _STYLES[finding.level]
        head = f"  {finding.level.value:<7} {finding.rule:<15} "
        # A path or the name of a quota is copied whole: if it has no room beside the rule, it stands below.
        beside = max(map(len, finding.message.split()), default=0) <= width - len(head)
        lines = [head + finding.message] if beside else [head.rstrip(), f"{_FIX}{finding.message}"]
        indent = " " * len(head) if beside else _FIX
        for number, line in enumerate(wrapped(lines, width, indent, break_long=False)):
            text = Text(line)
            if not number:
                text.stylize(style, 2, 2 + len(finding.level.value))
            console.print(text, soft_wrap=True)
        for line in wrapped(
            [f"{_FIX}fix: {finding.hint}"] * bool(finding.hint), width, _FIX, break_long=False
        ):
            console.print(Text(line), soft_wrap=True)


def _number(findings: Sequence[DoctorFinding], level: Level) -> int:
    return sum(finding.level is level for finding in findings)
