"""tpuctl logs: the job's log, across machines."""

from functools import partial

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive, name_argument
from orchestrator.cli.param_types import WORKER, Time


@click.command("logs", cls=Command)
@deployment_options
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the job ends.")
@click.option(
    "-n", "--tail", type=click.IntRange(0), metavar="LINES", help="Begin with the last LINES lines."
)
@click.option(
    "--since",
    metavar="TIME",
    type=Time(),
    help="Only what was written in the last TIME, such as 30m (see above).",
)
@click.option(
    "--worker", type=WORKER, default="0", show_default=True, metavar="N|all",
    help="The worker, or all, each line with its number.",
)  # fmt: skip
@click.option("--all-workers", is_flag=True, help="The same as --worker all.")
@click.option("--raw", is_flag=True, help="As the job wrote it, with terminal control codes.")
@click.option(
    "--events",
    is_flag=True,
    help="Print the events: what tpuctl did, on any computer, not what the job wrote.",
)
@exclusive("--worker", "--all-workers", "--events")
@name_argument
def command(
    choice: Choice, follow: bool, tail: int | None, since: float | None, worker: int | None, all_workers: bool,
    raw: bool, events: bool, name: str | None,
) -> None:  # fmt: skip
    """
    Print the job's log from the bucket: it outlives the machines that wrote it.

    New lines are there after 30 s at the latest. The lines of a job have no times, and the bucket has them in
    files of 256 kB: --since prints each file that was written in that time, so older lines may come first. With
    --events each line has a time, and --since prints only newer lines. NAME is a deployment that this computer
    has brought up; without it, the one of the deployment file.
    """
    from orchestrator.app.logs import read_events_of, read_job_log
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.cli.views.logs import JobLines, show_event

    reporter = EventPrinter(as_json=choice.as_json)
    if events:
        show = partial(show_event, as_json=choice.as_json)
        read_events_of(choice, show, reporter, name=name, follow=follow, tail=tail, seconds=since)
        return
    wanted = None if all_workers else worker
    lines = JobLines(choice.as_json, raw, numbered=wanted is None)
    read = read_job_log(
        choice, wanted, lines.show, reporter, name=name, follow=follow, tail=tail, seconds=since
    )
    lines.end(found=read.found, deleted=read.deleted, older=read.older)
