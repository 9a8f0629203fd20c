"""Show the figures of a finished run."""

from textwrap import wrap

from orchestrator.cli.console import put
from orchestrator.domain.text.amounts import saved_text, short_span_text, span_text, usd_range_text, usd_text
from orchestrator.report.recoveries import HEADINGS, LEGEND, PARTS, without_row
from orchestrator.report.summary import UNKNOWN, Summary, redone_texts

WIDTH = 80
NUMBER = 6
"""Characters of a number of seconds in the table of recoveries."""


def show_summary(summary: Summary, *, unbilled: bool) -> None:
    """Print the summary as text to stdout; *unbilled* is true on the local cloud."""
    for line in summary_lines(summary, unbilled=unbilled):
        put(line)


def summary_lines(summary: Summary, *, unbilled: bool) -> list[str]:
    """Return the summary as lines of at most 80 columns."""
    loss = "" if summary.loss is None else f", last loss {summary.loss:.4f}"
    wall = span_text(summary.wall_s)
    rows = [
        ("steps", f"{UNKNOWN if summary.steps is None else summary.steps}{loss}"),
        ("preemptions", f"{summary.preemptions}"),
        ("steps redone", redone_text(summary)),
        (
            # `goodput` in --json: people are told what it is (docs/glossary.md).
            "useful time",
            UNKNOWN
            if summary.goodput is None
            else f"{summary.goodput:.0%} of {wall} went into steps that count",
        ),
    ]
    if summary.save_pauses_s is not None and summary.save_pauses_s >= 0.5 and summary.measured_saves:
        rows.append(("saves", _pauses_text(summary.save_pauses_s, summary.measured_saves)))
    rows += _cost_rows(summary, "would have cost" if unbilled else "cost")
    return [line for name, text in rows for line in _row(name, text)] + _recovery_lines(summary)


def _pauses_text(seconds: float, number: int) -> str:
    """Return for how long *number* saves stopped the training."""
    if number == 1:
        return f"the one that was measured stopped the training for {short_span_text(seconds)}"
    each = seconds / number
    mean = f"{short_span_text(each)} each" if each >= 0.1 else "less than 0.1 s each"
    stopped = short_span_text(seconds)
    return f"the {number} that were measured usually stopped the training for {mean}, about {stopped} in all"


def _row(name: str, text: str) -> list[str]:
    """Return a row of the summary, the rest of a long *text* below its begin."""
    return wrap(text, WIDTH, initial_indent=f"  {name:<16}", subsequent_indent=" " * 18)


def _cost_rows(summary: Summary, title: str) -> list[tuple[str, str]]:
    """Return the cost and what was saved; the latter only if all prices are known."""
    if summary.unpriced:
        least = f"at least {usd_text(summary.usd)}; no price is known for: {', '.join(summary.unpriced)}"
        return [(title, least)]
    rows = [(title, f"{usd_range_text(summary.usd, summary.upper_usd)} (an estimate)")]
    share = saved_text(summary.usd, summary.upper_usd, summary.on_demand_usd)
    return (
        [*rows, ("saved", f"{share} against {usd_text(summary.on_demand_usd)} on demand")] if share else rows
    )


def redone_text(summary: Summary) -> str:
    """Return how many steps were trained twice, as far as known."""
    count, why = redone_texts(summary)
    return f"{count} ({why})" if why else count


def _indented(text: str) -> list[str]:
    return wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


def _recovery_lines(summary: Summary) -> list[str]:
    """Return a table of the recoveries, in seconds."""
    missing = without_row(summary.recoveries, summary.preemptions)
    last = _indented(missing) if missing else []
    if not summary.recoveries:
        return last
    heads = ("total", *(HEADINGS[name] for name in PARTS))
    widths = [max(len(head), NUMBER) + 1 for head in heads]
    cells = "".join(f"{head:>{width}}" for head, width in zip(heads, widths, strict=True))
    lines = ["  recovery, in seconds; a row names the new TPU", f"{'':8}{cells}"]
    for recovery in summary.recoveries:
        figures = (recovery.total_s, *(recovery.parts_s.get(name) for name in PARTS))
        texts = ("-" if seconds is None else f"{seconds:.1f}" for seconds in figures)
        cells = "".join(f"{text:>{width}}" for text, width in zip(texts, widths, strict=True))
        lines.append(f"  {f'TPU #{recovery.incarnation}':<6}{cells}")
    for recovery in summary.recoveries:
        if recovery.message:
            lines += _indented(f"-: of TPU #{recovery.incarnation}: {recovery.message}")
    lines += [*last, *(f"  {line}" for line in LEGEND)]
    back = sum(one.xla_programs_restored or 0 for one in summary.recoveries)
    if back:
        again = sum(one.xla_programs_compiled or 0 for one in summary.recoveries)
        lines.append(f"  {'XLA programs':<16}{back} came back compiled, {again} compiled after a preemption")
    return lines
