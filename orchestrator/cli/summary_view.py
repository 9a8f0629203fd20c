"""
Show the figures of a finished run.
"""

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.cli.wiring import Session
from orchestrator.core.bill import spent
from orchestrator.core.spec import VmSpec
from orchestrator.core.world import Present
from orchestrator.engine.eventlog import read_events
from orchestrator.engine.heartbeats import read_heartbeats
from orchestrator.report.summary import Summary, summarise

if TYPE_CHECKING:
    from rich.table import Table


def summary_of(session: Session) -> Summary:
    """
    Return the summary of the session's deployment, from what the bucket holds.
    """
    history = session.record.history
    seen = read_heartbeats(session.cloud.store, None)
    beats = seen.value if isinstance(seen, Present) else ()
    ended = max((b.updated for b in beats), default=session.clock.now())
    spec = session.spec
    vm = replace(spec.vm, spot=False) if isinstance(spec.vm, VmSpec) else spec.vm
    ondemand = replace(spec, tpu=replace(spec.tpu, spot=False), vm=vm)
    return summarise(
        beats,
        read_events(session.cloud.store),
        preemptions=history.preemptions,
        started_at=history.started_at,
        ended_at=ended,
        cost_usd=spent(spec, session.catalog, history, ended).known_usd,
        ondemand_usd=spent(ondemand, session.catalog, history, ended).known_usd,
    )


def show_summary(summary: Summary) -> None:
    """
    Print the summary for people, to stdout.
    """
    from rich.console import Console

    Console(highlight=False).print(_table(summary))


def _table(summary: Summary) -> "Table":
    from rich.table import Table

    table = Table(box=None, show_header=False, pad_edge=False)
    loss = "-" if summary.loss is None else f"{summary.loss:.4f}"
    table.add_row("steps", f"{summary.steps}")
    table.add_row("loss", loss)
    table.add_row("preemptions", f"{summary.preemptions}")
    table.add_row("steps redone", f"{summary.steps_redone}")
    for recovery in summary.recoveries:
        parts = ", ".join(f"{name} {seconds:.1f}" for name, seconds in recovery.parts.items())
        table.add_row(f"recovery {recovery.incarnation}", f"{recovery.total:.1f} s ({parts})")
    if summary.goodput is not None:
        table.add_row("goodput", f"{summary.goodput:.0%} of {summary.wall_seconds:.0f} s")
    table.add_row("cost", f"{summary.cost_usd:.4f} USD, on demand {summary.ondemand_usd:.4f} USD (estimate)")
    return table
