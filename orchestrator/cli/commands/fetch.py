"""tpuctl fetch: copy a checkpoint, or unclaimed files, to this computer."""

from pathlib import Path

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import print_json, say
from orchestrator.cli.options import Command, deployment_options, name_argument, output_option


@click.command("fetch", cls=Command)
@deployment_options
@click.option("--step", type=click.IntRange(min=0), help="This step. Default: the newest complete one.")
@click.option("--unclaimed", is_flag=True, help="What the job saved and no checkpoint contains.")
@click.option(
    "--incarnation", type=click.IntRange(min=1), help="With --unclaimed: of this one, not the newest."
)
@output_option("NAME-step-N or NAME-unclaimed-N")
@name_argument
def command(
    choice: Choice, step: int | None, unclaimed: bool, incarnation: int | None, output: Path | None,
    name: str | None,
) -> None:  # fmt: skip
    """
    Copy the newest complete checkpoint, the model, from the bucket to a new folder of this computer.

    It works while the job runs and after `tpuctl down`. Each file is compared with the sha256 that was noted
    when it was saved, where one was; the folder appears when all are right. Run it again after an interrupt,
    and it goes on. With --unclaimed it copies files that the job saved and that no checkpoint contains:
    tpuctl keeps them before it lets a machine go. NAME is a deployment that this computer has brought up;
    without it, the one of the deployment file.
    """
    from orchestrator.app.fetch import WantedFiles, fetch_files
    from orchestrator.cli.views.event_lines import EventPrinter

    done = fetch_files(choice, name, WantedFiles(step, unclaimed, incarnation), output, EventPrinter())
    parcel = done.parcel
    if choice.as_json:
        body = {"name": done.name, done.kind: done.number, "folder": str(done.folder), "bytes": parcel.size}
        print_json("fetch", {**body, "files": len(parcel.files), "verified": parcel.checked})
        return
    how = "each file has the sha256 it was saved with" if parcel.checked else "no sha256 was noted"
    say(f"{parcel.what} is in {done.folder}: {how}", style="green")
