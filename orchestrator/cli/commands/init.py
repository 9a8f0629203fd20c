"""tpuctl init: a first deployment file, a copy of an example, or what another tool's file becomes."""

from pathlib import Path

import click

from orchestrator.cli.options import Command, exclusive, json_option
from orchestrator.cli.views.init import show_converted, show_written


@click.command("init", cls=Command)
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
@click.option(
    "--recipe", help="Copy this recipe, such as numpy-lm or jax-lm. Default: a commented tpuctl.yaml only."
)
@click.option(
    "--from",
    "other",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Convert a task of SkyPilot or dstack, or a script that calls xpk or tpunicorn. It is not run.",
)
@click.option(
    "--all-settings",
    "everything",
    is_flag=True,
    help="Show all settings in the file, not only the first ones.",
)
@click.option("--name", help="Name of the deployment. Default: the folder's name, or the recipe's.")
@json_option
@exclusive("--recipe", "--from", "--all-settings")
def command(
    folder: Path, recipe: str | None, other: Path | None, name: str | None, everything: bool, as_json: bool
) -> None:
    """
    Write a commented tpuctl.yaml into FOLDER, with its schema for editors, or copy a recipe.

    The file shows the settings of a first job; with --all-settings it shows every one, with its default.

    The file runs the program in FOLDER (train.py, or the only one), and installs requirements.txt, or else the
    packages that it imports. The program finds the folder to save to in the environment variable
    TPUCTL_CHECKPOINT_DIR. With --from, a table shows which settings of the other file are mapped, which are left
    out and why, and what you have to decide.
    """
    from orchestrator.app.init import write_converted, write_first_files

    if other is None:
        show_written(write_first_files(folder, recipe, name, everything=everything), recipe, as_json=as_json)
        return
    file, found = write_converted(folder, other, name)
    show_converted(file, other, found, as_json=as_json)
