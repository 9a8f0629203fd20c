"""tpuctl report: the story of a deployment as one HTML page."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options, name_argument, output_option

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.app.session import Session
    from orchestrator.domain.observation import Heartbeat
    from orchestrator.domain.ports import Store
    from orchestrator.report.curve import Losses
    from orchestrator.report.page import Facts


@click.command("report")
@deployment_options
@output_option("NAME-report.html")
@name_argument
def command(
    choice: Choice, output: Path | None,
    name: str | None,
) -> None:  # fmt: skip
    """
    Write one HTML page: what each machine did, the loss, where time and money went, and all events.

    The page holds everything itself and needs no network. NAME is a deployment that this computer has brought
    up; without it, the one of the deployment file.
    """
    from orchestrator.app.expired import sweep_expired
    from orchestrator.app.known import open_session
    from orchestrator.cli.console import print_json, say
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.engine.atomic_files import write_atomically
    from orchestrator.report.page import page

    printer = EventPrinter()
    session = open_session(choice, name, printer, only_looks=True)
    sweep_expired(session)
    with printer:
        facts = facts_of(session)
    path = output or Path(f"{session.spec.name}-report.html")
    write_atomically(path, page(facts).encode())
    if choice.as_json:
        body = {"name": session.spec.name, "file": str(path), "events": len(facts.events)}
        print_json("report", {**body, "summary": facts.summary.as_dict()})
    else:
        say(f"{path}: open it in a browser; it needs no network", style="green")


class Memory:
    """Keep from one look to the next what was read: each byte that leaves the cloud costs, whoever wrote it."""

    def __init__(self, store: "Store") -> None:
        from orchestrator.engine.heartbeats import Heartbeats
        from orchestrator.engine.job_logs import JobLog
        from orchestrator.report.curve import Told

        self.reports = Heartbeats(store)
        self.log = JobLog(store, 0)
        self.told = Told()


def facts_of(session: "Session", memory: Memory | None = None) -> "Facts":
    """
    Look once and return all that a report tells. Raise UsageError when there is nothing to tell of.

    *memory* is for who looks again.
    """
    from orchestrator.app.glance import body_of, glance, holder_of
    from orchestrator.cli.views.summary import summary_of
    from orchestrator.domain.observation import Present
    from orchestrator.engine.event_log import read_events
    from orchestrator.errors import UsageError
    from orchestrator.pricing.spending import spending
    from orchestrator.report.page import Facts

    looked = glance(session)
    record, world = looked.record, looked.world
    if not record.started_at:
        raise UsageError(
            f"{session.spec.name} is not up: there is nothing to report", hint="run: tpuctl up",
            unchanged="nothing was changed", code="TPU-130",
        )  # fmt: skip
    memory = memory or Memory(session.store)
    seen = memory.reports.read(None)
    beats = seen.value if isinstance(seen, Present) else ()
    return Facts(
        status=body_of(session, looked, holder_of(session, world)),
        record=record,
        beats=beats,
        events=read_events(session.store),
        summary=summary_of(session, memory.reports),
        spending=spending(session.spec, session.catalog, record, beats, world.seen_at),
        losses=_losses(session, beats, memory),
        now=world.seen_at,
        rehearsed=session.choice.cloud == "local",
    )


def _losses(session: "Session", beats: "Sequence[Heartbeat]", memory: Memory) -> "Losses":
    """Return the loss by step; the job's log is read only where no watcher has seen enough."""
    from orchestrator.config.rules.progress_patterns import progress_text
    from orchestrator.engine.published_status import read_curve
    from orchestrator.report.curve import FEW, losses

    seen = read_curve(session.store)
    if len(seen) >= FEW:
        return losses(seen, beats)
    lines = ((incarnation, line) for incarnation, _, line in memory.log.new_lines())
    return losses(seen, beats, lines, progress_text(session.spec), memory.told)
