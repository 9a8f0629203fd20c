"""tpuctl logs: the job's log, across machines."""

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import put
from orchestrator.cli.options import deployment_options

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from orchestrator.app.session import Session

FOLLOW_SECONDS = 2.0


@click.command("logs")
@deployment_options
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the job ends.")
@click.option("--worker", type=int, help="Only this worker. Default: worker 0.", default=0, show_default=True)
@click.option("--all-workers", is_flag=True, help="All workers, each line with its number.")
@click.option("--raw", is_flag=True, help="As the job wrote it, with all that steers a terminal.")
@click.option("--controller", is_flag=True, help="What tpuctl did instead, wherever its loop ran.")
def command(
    choice: Choice, follow: bool, worker: int,
    all_workers: bool, raw: bool, controller: bool,
) -> None:  # fmt: skip
    """Print the job's log from the bucket: it outlives the machines that wrote it."""
    from orchestrator.app.session import Session
    from orchestrator.cli.views.event_lines import EventPrinter

    session = Session(choice, EventPrinter(as_json=choice.as_json), only_looks=True)
    if controller:
        _controller(session, follow=follow)
    else:
        _job(session, None if all_workers else worker, follow=follow, raw=raw)


def _controller(session: "Session", *, follow: bool) -> None:
    import time

    from orchestrator.engine.event_log import new_events

    seen: set[str] = set()

    def show() -> None:
        for event in new_events(session.store, seen):
            stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at))
            put(event.to_json().decode() if session.choice.as_json else f"{stamp}  {event.text}")

    _until_over(session, show, follow=follow)


def _until_over(session: "Session", show: "Callable[[], None]", *, follow: bool) -> None:
    """
    Show what there is, and with *follow* go on until the deployment is over.

    A bucket that does not answer for a moment is asked again; machines may come and go meanwhile.
    """
    from orchestrator.errors import Retry, TpuctlError

    troubled = ""
    while True:
        try:
            # Asked before the lines are read: the last ones are in the bucket before the end is known.
            over = not follow or bool(session.records.load().outcome)
            show()
            troubled = ""
        except TpuctlError as error:
            if not follow or error.retry is not Retry.TRANSIENT:
                raise
            if error.message != troubled:
                put(f"{error.message} ({error.code}); trying again", err=True)
            troubled, over = error.message, False
        if over:
            return
        session.clock.wait(FOLLOW_SECONDS)


def _job(session: "Session", worker: int | None, *, follow: bool, raw: bool) -> None:
    """Print the log of one worker, of all when *worker* is None."""
    import json

    from orchestrator.engine.job_logs import JobLog

    log = JobLog(session.store, worker)
    seen = 0

    def show(lines: "Iterable[tuple[int, int, str]]") -> None:
        nonlocal seen
        for incarnation, index, line in lines:
            seen += 1
            if session.choice.as_json:
                click.echo(json.dumps({"incarnation": incarnation, "worker": index, "line": line}))
            else:
                start = f"w{index} " if worker is None else ""
                for part in [line] if raw else parts_of(line):
                    (click.echo if raw else put)(f"{start}{part}")

    _until_over(session, lambda: show(log.new_lines()), follow=follow)
    show(log.unfinished())
    if not seen and not session.choice.as_json:
        click.echo("no log yet; see `tpuctl status`", err=True)


def parts_of(line: str) -> list[str]:
    """Return what a terminal would leave of a line that is drawn again and again; elsewhere all of it in lines."""
    parts = [part for part in line.split("\r") if part] or [""]
    return parts[-1:] if sys.stdout.isatty() else parts
