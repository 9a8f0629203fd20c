"""Show the figures of a finished run."""

from dataclasses import replace

from orchestrator.app.session import Session
from orchestrator.cli.console import put
from orchestrator.domain.amounts import span_text, usd_text
from orchestrator.domain.observation import Present
from orchestrator.domain.spec import VmSpec
from orchestrator.engine.event_log import read_events
from orchestrator.engine.heartbeats import Heartbeats
from orchestrator.pricing.bill import spent
from orchestrator.report.summary import PARTS, Summary, summarise

UNKNOWN = "not known"


def summary_of(session: Session, reports: Heartbeats | None = None) -> Summary:
    """
    Return the summary of the session's deployment, from what the bucket holds.

    *reports* knows those that were read before: they are not read again.
    """
    record = session.records.current
    seen = (reports or Heartbeats(session.cloud.store)).read(None)
    beats = seen.value if isinstance(seen, Present) else ()
    ended = max((b.updated for b in beats), default=session.clock.now())
    spec = session.spec
    vm = replace(spec.vm, spot=False) if isinstance(spec.vm, VmSpec) else spec.vm
    ondemand = replace(spec, tpu=replace(spec.tpu, spot=False), vm=vm)
    return summarise(
        beats,
        read_events(session.cloud.store),
        preemptions=record.node.preemptions,
        started_at=record.started_at,
        ended_at=ended,
        cost_usd=spent(spec, session.catalog, record, ended).known_usd,
        ondemand_usd=spent(ondemand, session.catalog, record, ended).known_usd,
    )


def show_summary(summary: Summary, *, rehearsed: bool) -> None:
    """Print the summary for people, to stdout; *rehearsed* says that nothing of it was billed."""
    for line in summary_lines(summary, rehearsed=rehearsed):
        put(line)


def summary_lines(summary: Summary, *, rehearsed: bool) -> list[str]:
    """Return the summary as lines of at most 80 columns."""
    loss = "" if summary.loss is None else f", last loss {summary.loss:.4f}"
    wall = span_text(summary.wall_seconds)
    rows = [
        ("steps", f"{UNKNOWN if summary.steps is None else summary.steps}{loss}"),
        ("preemptions", f"{summary.preemptions}"),
        ("steps redone", redone_text(summary)),
        (
            "goodput",
            UNKNOWN
            if summary.goodput is None
            else f"{summary.goodput:.0%} of {wall} went into steps that count",
        ),
    ]
    cost = f"{usd_text(summary.cost_usd)}, all on demand {usd_text(summary.ondemand_usd)} (estimate)"
    rows.append(("would have cost" if rehearsed else "cost", cost))
    return [f"  {name:<16}{text}" for name, text in rows] + _recovery_lines(summary)


def redone_text(summary: Summary) -> str:
    """Return how many steps were trained twice, as far as anybody has counted."""
    if summary.steps_redone is None:
        return UNKNOWN
    return f"{'at least ' if summary.redone_at_least else ''}{summary.steps_redone}"


def _recovery_lines(summary: Summary) -> list[str]:
    """Return a table of the ways back, in seconds."""
    if not summary.recoveries:
        return []
    head = "".join(f"{name:>8}" for name in ("total", *PARTS))
    lines = [f"  {'recovery, s':<14}{head}"]
    for recovery in summary.recoveries:
        figures = (recovery.total, *(recovery.parts[name] for name in PARTS))
        cells = "".join(f"{seconds:8.1f}" for seconds in figures)
        lines.append(f"  {f'  TPU g{recovery.incarnation}':<14}{cells}")
    return lines
