"""tpuctl init: a first deployment file, or a copy of an example."""

from pathlib import Path

import click

from orchestrator.cli.console import print_json, say
from orchestrator.cli.options import json_option


@click.command("init")
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option(
    "--recipe", help="Copy an example, such as numpy-lm or jax-lm. Default: a commented tpuctl.yaml only."
)
@click.option("--name", help="Name of the deployment. Default: the folder's name.")
@json_option
def command(folder: Path, recipe: str | None, name: str | None, as_json: bool) -> None:
    """
    Write a commented tpuctl.yaml into FOLDER, with its schema for editors, or copy an example.

    Where FOLDER has a requirements.txt, the file lets each machine install it.
    """
    from orchestrator.app.init import write_first_files

    file = write_first_files(folder, recipe, name)
    if as_json:
        print_json("init", {"file": str(file), "recipe": recipe})
    else:
        say(f"{file} is written. Next: tpuctl plan")
