"""
tpuctl logs: the job's log, across machines.
"""

from pathlib import Path

import click

from orchestrator.cli.options import deployment_options

FOLLOW_SECONDS = 2.0


@click.command("logs")
@deployment_options
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines until the job ends.")
@click.option("--worker", type=int, help="Only this worker. Default: worker 0.", default=0, show_default=True)
@click.option("--all-workers", is_flag=True, help="All workers, each line with its number.")
def command(
    file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool, follow: bool, worker: int,
    all_workers: bool,
) -> None:  # fmt: skip
    """
    Print the job's log from the bucket: it outlives the machines that wrote it.
    """
    import json

    from orchestrator.cli.events import EventPrinter
    from orchestrator.cli.wiring import Choice, Session
    from orchestrator.engine.joblogs import JobLog

    session = Session(Choice(file, settings, cloud, as_json), EventPrinter(as_json=as_json))
    log = JobLog(session.cloud.store, None if all_workers else worker)
    seen = 0
    while True:
        # Asked before the lines are read: the last ones are in the bucket before the end is known.
        over = not follow or bool(session.record.load().outcome)
        for incarnation, index, line in log.new_lines():
            seen += 1
            if as_json:
                click.echo(json.dumps({"incarnation": incarnation, "worker": index, "line": line}))
            else:
                click.echo(f"w{index} {line}" if all_workers else line)
        if over:
            break
        session.clock.wait(FOLLOW_SECONDS)
    if not seen and not as_json:
        click.echo("no log yet; see `tpuctl status`", err=True)
