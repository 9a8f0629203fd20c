"""tpuctl checkpoints: what is saved in the bucket, and copies of it on this computer."""

from pathlib import Path

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import (
    Command,
    VerbGroup,
    deployment_options,
    exclusive,
    name_argument,
    needs,
    output_option,
)


@click.group("checkpoints", cls=VerbGroup, plain="list")
def command() -> None:
    """List the checkpoints in the bucket, or copy one to this computer. Without a verb it lists."""


@command.command(
    "list", cls=Command, short_help="Show what is saved, whole or not and why, and what would be resumed."
)
@deployment_options
@click.option("--verify", is_flag=True, help="Read every byte of the complete ones and check their sha256.")
@name_argument
def show(choice: Choice, verify: bool, name: str | None) -> None:
    """
    Show the checkpoints in the bucket: complete or not and why, and which one would be resumed.

    Changes nothing. With --verify it exits with 1 when a complete one is not as it was saved. NAME is a
    deployment that this computer has brought up; without it, the one of the deployment file.
    """
    from orchestrator.app.checkpoints import list_checkpoints
    from orchestrator.cli.views import checkpoints
    from orchestrator.cli.views.event_lines import EventPrinter

    found = list_checkpoints(choice, EventPrinter(), name, verify=verify)
    checkpoints.show(found, as_json=choice.as_json)
    # After the listing: the exit code is for scripts, but users need to see which checkpoint it is.
    if found.damaged:
        raise click.exceptions.Exit(1)


@command.command("fetch", cls=Command, short_help="Copy the newest one, the model, to this computer.")
@deployment_options
@click.option("--step", type=click.IntRange(min=0), help="This step. Default: the newest complete one.")
@click.option("--uncommitted", is_flag=True, help="What the job saved and no checkpoint contains.")
@click.option(
    "--incarnation",
    type=click.IntRange(min=1),
    help="With --uncommitted: the TPU's number. Default: the newest TPU's.",
)
@output_option("NAME-step-N or NAME-uncommitted-N", folder=True)
@name_argument
@exclusive("--step", "--uncommitted", hint="--step is for checkpoints: leave one of them out")
@needs("--incarnation", "--uncommitted", hint="to choose a checkpoint, use --step N")
def fetch(
    choice: Choice, step: int | None, uncommitted: bool, incarnation: int | None, output: Path | None,
    name: str | None,
) -> None:  # fmt: skip
    """
    Copy the newest complete checkpoint, the model, from the bucket to a new folder of this computer.

    It works while the job runs and after `tpuctl down`. Each file is compared with the sha256 recorded
    at its save, if there is one; the folder appears when all are right. Run it again after an interrupt,
    and it continues. With --uncommitted it copies files that the job saved and that no checkpoint contains:
    tpuctl keeps them before it lets a machine go. NAME is a deployment that this computer has brought up;
    without it, the one of the deployment file.
    """
    from orchestrator.app.fetch import WantedFiles, fetch_files
    from orchestrator.cli.views import checkpoints as view
    from orchestrator.cli.views.event_lines import EventPrinter

    wanted = WantedFiles(step, uncommitted, incarnation)
    view.show_fetched(fetch_files(choice, name, wanted, output, EventPrinter()), as_json=choice.as_json)
