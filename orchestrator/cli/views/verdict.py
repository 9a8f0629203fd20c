"""Show the verdict of a rehearsal."""

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from orchestrator.advice.rehearsal.recovery import PARTS, RecoveryVerdict
from orchestrator.advice.rehearsal.same_bytes import Likeness
from orchestrator.advice.rehearsal.verdict import Crash, RehearsalResult, RehearsalVerdict, RehearsedRun
from orchestrator.app.rehearsal.rehearse import Rehearsed
from orchestrator.cli.console import columns, print_json, wrapped
from orchestrator.domain.plan import Outcome
from orchestrator.report.recoveries import HEADINGS

FEW = 3
"""File names that are listed at most."""
LEGEND = (
    "counted from the fault; the table of `watch` counts from the last report.",
    "machine: until the next one boots. The time to send it the code is not shown.",
)
"""Explains the recovery table, in lines of at most 78 columns."""


def show(found: Rehearsed, settings: Sequence[str], *, as_json: bool) -> None:
    """Print the verdict, and where the local cloud is kept."""
    if as_json:
        folder = str(found.cloud) if found.retained else None
        print_json("rehearsal", {**found.verdict.as_dict(), "folder": folder})
        return
    lines = fitted(verdict_lines(found.verdict), columns())
    if found.retained:
        lines += retained_lines(found.cloud, found.work, settings)
    for line in lines:
        click.echo(line)


def verdict_lines(verdict: RehearsalVerdict) -> list[str]:
    """Return the verdict, its reasons and the recoveries, as lines of text."""
    lines = ["", f"{verdict.result.value}: {_headline(verdict)}"]
    if verdict.crash is not None:
        lines += _crash(verdict.crash)
    for recovery in verdict.recoveries:
        lines.append(
            f"  {recovery.fault.value:<11}{'resumed' if recovery.resumed else 'LOST':<9}{_recovery_text(recovery)}"
        )
    if verdict.done:
        lines += [f"  loss       {_loss(verdict)}", f"  bytes      {_bytes(verdict)}"]
        lines += [f"  compare    {text}" for text in _strength(verdict)]
        lines.append(f"  torn checkpoints moved aside: {verdict.torn}")
    lines += _costs(verdict.recoveries)
    if verdict.longer_s is not None:
        lines.append(f"  longer than the undisturbed run by {_longer(verdict.longer_s, verdict.faults_s)}")
    lines += [f"  to do: {text}" for text in verdict.hints]
    return [*lines, "  next:  tpuctl up"] if verdict.result is RehearsalResult.PASS else lines


def fitted(lines: list[str], width: int) -> list[str]:
    """Return the lines wrapped between words at *width* (0: not at all); what goes on is indented further."""
    found: list[str] = []
    for line in lines:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        found += wrapped([line], width, indent, break_long=False)
    return found


def retained_lines(cloud: Path, work: Path, settings: Sequence[str] = ()) -> list[str]:
    """Return lines about what is kept; indented ones are commands that can be pasted into a shell."""
    place = f"TPUCTL_LOCAL_DIR={shlex.quote(str(cloud))}"
    flags = "".join(f" --set {shlex.quote(setting)}" for setting in settings)
    return [
        "",
        "Kept for you to look at: the local cloud, with machines, bucket and logs. In any shell:",
        # Users paste these lines into a shell, so paths are quoted.
        f"  cd {shlex.quote(str(work))}",
        f"  export TPUCTL_CLOUD=local {place}",
        f"  tpuctl logs{flags}",
        "It ends with:",
        f"  {place} tpuctl local reset; rmdir {shlex.quote(str(cloud.parent))}",
    ]


def _headline(verdict: RehearsalVerdict) -> str:
    back, count = sum(c.resumed for c in verdict.recoveries), len(verdict.recoveries)
    if verdict.crash is not None and verdict.crash.run is RehearsedRun.UNDISTURBED:
        return f"the job fails with no fault injected: {_ending(verdict.crash)}"
    if verdict.crash is not None:
        return f"the job did not reach its end: {_ending(verdict.crash)}"
    if verdict.result is RehearsalResult.INCONCLUSIVE and verdict.silent:
        return "tpuctl saw no step and no checkpoint of this job"
    if verdict.result is RehearsalResult.INCONCLUSIVE:
        return f"the job ended after {count} of {count + verdict.missed} faults"
    return f"job recovered from {back} of {count + verdict.missed} faults"


def _ending(crash: Crash) -> str:
    if crash.outcome is Outcome.UNCOMMITTED:
        return "no checkpoint was saved"
    if crash.exit_code is None or crash.outcome is not Outcome.FAILED:
        return crash.message
    return f"exit status {crash.exit_code}{'' if crash.exit_code else ' before its target'}"


def _crash(crash: Crash) -> list[str]:
    lines = [] if crash.exit_code else [f"  cause      {crash.message}"]
    if not crash.log:
        return [*lines, "  log        the job printed nothing"]
    return [
        *lines,
        f"  log        its last {len(crash.log)} lines:",
        *(f"    | {line}" for line in crash.log),
    ]


def _recovery_text(recovery: RecoveryVerdict) -> str:
    redone = "" if recovery.steps_redone is None else f", {recovery.steps_redone} steps redone"
    seconds = "" if recovery.total_s is None else f", {recovery.total_s:.1f} s to the next step"
    return f"{recovery.message}{redone}{seconds}"


def _longer(seconds: float, faults: float | None) -> str:
    """Return by how much the run was longer, and how much of that the faults explain."""
    if faults is None:
        return f"{seconds:.0f} s"
    text, rest = f"{seconds:.0f} s: recoveries and steps redone took {faults:.0f} s", seconds - faults
    return f"{text}, the rest is of other causes, such as other work on this computer" if rest >= 1 else text


def _loss(verdict: RehearsalVerdict) -> str:
    if verdict.loss is None:
        return "not known: the job reported none"
    if not verdict.compared:
        return f"{verdict.loss:.6g}, not compared"
    if verdict.undisturbed_loss is None:
        return f"{verdict.loss:.6g}, not known of the undisturbed run"
    word = "the same as" if verdict.same_loss else "DIFFERENT from"
    return f"{verdict.loss:.6g}, {word} the undisturbed run's {verdict.undisturbed_loss:.6g}"


def _bytes(verdict: RehearsalVerdict) -> str:
    found = verdict.bytes
    if not verdict.compared:
        return "not compared"
    if found is None:
        return "not known: the runs have no checkpoint of the same step"
    where = f"checkpoint of step {found.step}"
    if found.likeness is Likeness.SAME:
        return f"the same in both runs ({where}, {found.files} file{'s' if found.files != 1 else ''})"
    if found.likeness is Likeness.UNKNOWN:
        return f"not known: this format's files carry times and random names ({where})"
    names = ", ".join(found.differ[:FEW]) + (" ..." if len(found.differ) > FEW else "")
    return f"DIFFERENT in {len(found.differ)} of {found.files} files ({where}: {names})"


def _strength(verdict: RehearsalVerdict) -> list[str]:
    """Return a warning if nothing shows that both runs produced the same model."""
    if (
        not verdict.survives
        or verdict.same_loss is not None
        or verdict.same_bytes is not None
        or not verdict.recoveries
    ):
        return []
    back = sum(c.resumed for c in verdict.recoveries)
    return [f"weaker: nothing to compare; it came back {back} of {len(verdict.recoveries)} times"]


def _costs(recoveries: Sequence[RecoveryVerdict]) -> list[str]:
    """Return a table of the parts of each recovery, in seconds."""
    rows = [c for c in recoveries if c.parts_s]
    if not rows:
        return []
    lines = [f"  {'recovery, s':<14}" + "".join(f"{HEADINGS.get(name, name):>12}" for name in PARTS)]
    for row in rows:
        cells = "".join(
            f"{row.parts_s[name]:>12.1f}" if name in row.parts_s else f"{'-':>12}" for name in PARTS
        )
        lines.append(f"    {row.fault.value:<12}{cells}")
    saved = [(row.fault.value, row.warm_saved_s) for row in rows if row.warm_saved_s is not None]
    lines += [f"    {line}" for line in LEGEND]
    if saved:
        figures = ", ".join(
            f"{fault} {abs(one):.1f} s {'shorter' if one >= 0 else 'longer'}" for fault, one in saved
        )
        # Kept are what the first machine had installed and compiled.
        lines.append(
            f"  setup and first step, against the first machine, which had no packages yet: {figures}"
        )
    return lines
