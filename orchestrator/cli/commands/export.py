"""tpuctl export: the deployment as plain scripts."""

from pathlib import Path

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import print_json, say
from orchestrator.cli.options import Command, deployment_options


@click.command("export", cls=Command)
@deployment_options
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def command(choice: Choice, folder: Path) -> None:
    """
    Write into FOLDER what a person would run by hand with gcloud: bucket, TPU, VM, code, restarts, the end.

    The scripts need no tpuctl, and use names and a bucket of their own. Secrets are named, their values are
    not in them. README.md in FOLDER lists what is lost without tpuctl. Nothing is created in the cloud.
    """
    from orchestrator.app.export import export

    done = export(choice, folder)
    if choice.as_json:
        print_json("export", {"folder": str(folder), "project": done.project, "files": list(done.files)})
    else:
        say(
            f"{len(done.files)} files are in {folder}, for project {done.project}. Next: read {folder}/README.md"
        )
