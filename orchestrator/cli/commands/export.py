"""tpuctl export: the deployment as plain scripts, or as files of another system."""

from pathlib import Path
from typing import Literal

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options


@click.command("export", cls=Command)
@deployment_options
@click.option(
    "--to", type=click.Choice(("scripts", "jobset", "skypilot", "ray")), default="scripts", show_default=True,
    help="plain scripts for gcloud; JobSet and Kueue on GKE; a task of SkyPilot; a job for a Ray cluster.",
)  # fmt: skip
@click.option(
    "--slices",
    type=click.IntRange(1, 1024),
    default=1,
    help="With --to jobset: slices that train as one job.",
)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def command(
    choice: Choice, folder: Path, to: Literal["scripts", "jobset", "skypilot", "ray"], slices: int
) -> None:
    """
    Write into FOLDER what a person would run by hand with gcloud, or what another system runs.

    The files need no tpuctl, and use names and a bucket of their own. Secrets are named, their values are
    not in them. README.md in FOLDER says what to do and lists what is unsupported without tpuctl. Nothing is
    created in the cloud.
    """
    from orchestrator.app.export import export
    from orchestrator.cli.views import export as view

    view.show(export(choice, folder, to, slices), as_json=choice.as_json)
