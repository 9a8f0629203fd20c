"""
Options that several commands share, with one meaning everywhere.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def deployment_options(function: F) -> F:
    """
    Add what selects a deployment: --file, --set, --cloud, --json.
    """
    file = click.option(
        "--file",
        type=click.Path(path_type=Path, dir_okay=False),
        help="Deployment file. Default: tpuctl.yaml here or in a folder above.",
    )
    settings = click.option(
        "--set",
        "settings",
        multiple=True,
        metavar="KEY=VALUE",
        help="Override a setting, for example --set tpu.spot=false.",
    )
    decorators: tuple[Any, ...] = (json_option, cloud_option, settings, file)
    for decorate in decorators:
        function = decorate(function)
    return function


cloud_option = click.option(
    "--cloud",
    type=click.Choice(["gcp", "local"]),
    default="gcp",
    envvar="TPUCTL_CLOUD",
    show_default=True,
    help="gcp: Google Cloud. local: the local cloud on this computer.  [env: TPUCTL_CLOUD]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool, flag: str = "--yes") -> None:
    """
    Ask on a terminal; without one, refuse and name the flag that answers.
    """
    if yes:
        return
    if not click.get_text_stream("stdin").isatty():
        raise click.UsageError(f"nobody is here to answer; add {flag}")
    click.confirm(question, abort=True, err=True)
