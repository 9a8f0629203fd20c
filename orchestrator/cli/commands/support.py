"""tpuctl support: one archive of what a maintainer needs, without secrets, on this computer only."""

from pathlib import Path

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, name_argument, output_option, yes_option
from orchestrator.cli.questions import confirm, must_answer


@click.command("support", cls=Command)
@deployment_options
@yes_option
@output_option("tpuctl-support-DATE.zip")
@name_argument
def command(choice: Choice, yes: bool, output: Path | None, name: str | None) -> None:
    """
    Write an archive for a bug report: versions, settings, doctor, record, changes, events, end of the logs.

    Its files are listed before it is written, to this computer only; nothing is sent anywhere. Secrets are
    masked; names of projects, buckets, machines and people are not, so look before you give it away. What
    cannot be read is left out and named. NAME is a deployment that this computer has brought up.
    """
    from orchestrator.app.support import collect, default_archive, write_archive
    from orchestrator.cli.views import support as view

    # First, because collecting takes a while.
    path = output or default_archive()
    must_answer(yes=yes, asks=f"Write {path}?")
    found = collect(choice, name)
    view.announce(found)
    confirm(f"Write {path}?", yes=yes)
    write_archive(path, found)
    view.show(path, found, as_json=choice.as_json)
