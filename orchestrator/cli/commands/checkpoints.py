"""tpuctl checkpoints: what is saved in the bucket, and what the next start would resume from."""

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import print_json
from orchestrator.cli.options import Command, deployment_options


@click.command("checkpoints", cls=Command)
@deployment_options
@click.option("--verify", is_flag=True, help="Read every byte of the complete ones and check their sha256.")
def command(choice: Choice, verify: bool) -> None:
    """
    Show the checkpoints in the bucket: complete or not and why, and which one would be resumed.

    Changes nothing. With --verify it exits with 1 when a complete one is not as it was saved.
    """
    from orchestrator.app.checkpoints import list_checkpoints
    from orchestrator.cli.views import checkpoints
    from orchestrator.cli.views.event_lines import EventPrinter

    found = list_checkpoints(choice, EventPrinter(), verify=verify)
    if choice.as_json:
        print_json("checkpoints", found.as_dict())
    else:
        checkpoints.show(found)
    # After the listing: the exit code is for scripts, and people need to see which one it is.
    if found.faulty:
        raise click.exceptions.Exit(1)
