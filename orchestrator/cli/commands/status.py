"""tpuctl status: what exists and how far the job is."""

from pathlib import Path
from typing import Any

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import put
from orchestrator.cli.options import deployment_options, name_argument

EVERY = 5.0
"""Seconds between two looks of `--watch`."""


@click.command("status")
@deployment_options
@click.option("-w", "--watch", is_flag=True, help="Go on, until Ctrl-C or the end of the deployment.")
@click.option("--wide", is_flag=True, help="As wide as the terminal, and a line for each worker.")
@click.option("--fresh", is_flag=True, help="Ask the cloud, also where the watcher has just looked.")
@name_argument
def command(
    choice: Choice, watch: bool, wide: bool,
    fresh: bool, name: str | None,
) -> None:  # fmt: skip
    """
    Show bucket, VM, TPU and job. Changes nothing of them.

    While somebody watches the deployment, its last look is shown and how old that is; otherwise, and with
    --fresh, the cloud is asked. NAME is a deployment that this computer has brought up; without it, the one
    of the deployment file, and without a file all that are known here.
    """
    from orchestrator.app.quick import seen_here
    from orchestrator.app.status import aged_status
    from orchestrator.cli.console import print_json

    found = None if watch or fresh or choice.settings else seen_here(choice.cloud, choice.file, name)
    if found is not None:
        body = aged_status(found)
    else:
        seen = _look(choice, name, watch=watch, wide=wide, fresh=fresh)
        if seen is None:
            return
        body = seen
    if choice.as_json:
        print_json("status", body)
        return
    for line in shown(body, choice.cloud, wide=wide):
        put(line)


def _look(choice: Choice, name: str | None, *, watch: bool, wide: bool, fresh: bool) -> dict[str, Any] | None:
    """Judge the file and look; None when what there is has been shown on the way."""
    from orchestrator.app.expired import sweep_expired
    from orchestrator.app.known import open_session
    from orchestrator.app.quick import keep_mark
    from orchestrator.app.status import newest
    from orchestrator.cli.views.event_lines import EventPrinter

    if name is None and _no_file(choice):
        from orchestrator.cli.commands.top import show_all

        show_all(choice, watch=watch)
        return None
    printer = EventPrinter()
    session = open_session(choice, name, printer, only_looks=True)
    if not name and not choice.settings:
        keep_mark(session)
    sweep_expired(session)
    if watch:
        from orchestrator.cli.views.redraw import follow

        follow(session, wide=wide, fresh=fresh)
        return None
    with printer:
        return newest(session, fresh=fresh)


def shown(body: dict[str, Any], cloud: str, *, wide: bool) -> list[str]:
    """Return the status as lines for this terminal."""
    from orchestrator.cli.console import columns
    from orchestrator.cli.views.status import WIDTH, status_lines

    width = columns()
    width = width if wide else min(WIDTH, width or WIDTH)
    return status_lines(body, rehearsed=cloud == "local", width=width, wide=wide)


def _no_file(choice: Choice) -> bool:
    """Say whether there is no deployment file, but this computer knows deployments."""
    from orchestrator.app.state_folders import kept_files
    from orchestrator.config.find import find
    from orchestrator.errors import UsageError

    if choice.file is not None or choice.settings:
        return False
    try:
        find(Path.cwd())
    except UsageError:
        return bool(kept_files(choice.cloud))
    return False
