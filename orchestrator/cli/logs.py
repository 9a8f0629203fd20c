"""
tpuctl logs: the job's log, across machines.
"""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import deployment_options

if TYPE_CHECKING:
    from orchestrator.cli.wiring import Session

FOLLOW_SECONDS = 2.0


@click.command("logs")
@deployment_options
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the job ends.")
@click.option("--worker", type=int, help="Only this worker. Default: worker 0.", default=0, show_default=True)
@click.option("--all-workers", is_flag=True, help="All workers, each line with its number.")
@click.option("--controller", is_flag=True, help="What tpuctl did instead, wherever its loop ran.")
def command(
    file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool, follow: bool, worker: int,
    all_workers: bool, controller: bool,
) -> None:  # fmt: skip
    """
    Print the job's log from the bucket: it outlives the machines that wrote it.
    """
    from orchestrator.cli.events import EventPrinter
    from orchestrator.cli.wiring import Choice, Session

    session = Session(Choice(file, settings, cloud, as_json), EventPrinter(as_json=as_json))
    if controller:
        _controller(session, follow=follow)
    else:
        _job(session, None if all_workers else worker, follow=follow)


def _controller(session: "Session", *, follow: bool) -> None:
    import time

    from orchestrator.engine.eventlog import new_events

    seen: set[str] = set()
    while True:
        over = not follow or bool(session.record.load().outcome)
        for event in new_events(session.cloud.store, seen):
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
            click.echo(event.to_json().decode() if session.choice.as_json else f"{stamp}  {event.text}")
        if over:
            break
        session.clock.wait(FOLLOW_SECONDS)


def _job(session: "Session", worker: int | None, *, follow: bool) -> None:
    """
    Print the log of one worker, of all when *worker* is None.
    """
    import json

    from orchestrator.engine.joblogs import JobLog

    log = JobLog(session.cloud.store, worker)
    seen = 0
    while True:
        # Asked before the lines are read: the last ones are in the bucket before the end is known.
        over = not follow or bool(session.record.load().outcome)
        for incarnation, index, line in log.new_lines():
            seen += 1
            if session.choice.as_json:
                click.echo(json.dumps({"incarnation": incarnation, "worker": index, "line": line}))
            else:
                click.echo(f"w{index} {line}" if worker is None else line)
        if over:
            break
        session.clock.wait(FOLLOW_SECONDS)
    if not seen and not session.choice.as_json:
        click.echo("no log yet; see `tpuctl status`", err=True)
