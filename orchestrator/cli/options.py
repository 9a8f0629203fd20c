"""Options that several commands share, with one meaning everywhere."""

import functools
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
from click.shell_completion import CompletionItem

from orchestrator.app.choice import Choice
from orchestrator.errors import UsageError

F = TypeVar("F", bound=Callable[..., Any])


def complete_name(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the deployments whose name begins so, each with its project, for the shell's completion."""
    # Each --help passes here, and only a shell that completes a name needs the folders.
    from orchestrator.app.state_folders import known_files

    cloud = str(ctx.params.get("cloud") or os.environ.get("TPUCTL_CLOUD") or "gcp")
    folders = (path.parent for path in known_files(cloud))
    return [CompletionItem(f.name, help=f.parent.name) for f in folders if f.name.startswith(incomplete)]


def deployment_options(function: F) -> Callable[..., Any]:
    """Add what selects a deployment: --file, --set, --cloud, --json. The command is given them as one `Choice`."""

    @functools.wraps(function)
    def chosen(
        *, file: Path | None, settings: Sequence[str], cloud: str, as_json: bool, account_override: bool,
        **more: Any,
    ) -> Any:  # fmt: skip
        return function(Choice(file, settings, cloud, as_json, account_override), **more)

    override = click.option(
        "--account-override",
        is_flag=True,
        help="Act although another project, login or computer brought the deployment up.",
    )
    return settings_options(cloud_option(json_option(override(chosen))))


def settings_options(function: F) -> F:
    """Add what names the deployment file and overrides it: --file, --set."""
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
    return file(settings(function))


cloud_option = click.option(
    "--cloud",
    type=click.Choice(["gcp", "local"]),
    # The real cloud by default: a rehearsal must never be taken for a real run.
    default="gcp",
    envvar="TPUCTL_CLOUD",
    show_default=True,
    help="gcp: Google Cloud. local: the local cloud on this computer.  [env: TPUCTL_CLOUD]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON to stdout.")
name_argument = click.argument("name", required=False, shell_complete=complete_name)
"""NAME of a deployment that this computer has brought up; it needs no file."""
yes_option = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def output_option(default: str) -> Callable[[F], F]:
    """Add -o/--output, the file to write; *default* tells which one it is otherwise."""
    return click.option(
        "-o",
        "--output",
        type=click.Path(path_type=Path, dir_okay=False),
        help=f"Where to write.  [default: {default}]",
    )


def confirm(question: str, *, yes: bool, flag: str = "--yes") -> None:
    """Ask on a terminal; a no ends the command with 1."""
    must_answer(yes=yes, flag=flag)
    # On stderr: stdout belongs to the answer, which may be piped.
    if yes or click.confirm(question, err=True):
        return
    click.echo("nothing was changed", err=True)
    raise click.exceptions.Exit(1)


def confirm_name(name: str, question: str, *, yes: bool) -> None:
    """Ask on a terminal for *name* itself, where a yes is too quick; another word ends the command with 1."""
    must_answer(yes=yes)
    if (
        yes
        # No default: an empty line is a no.
        or click.prompt(f"{question} Type {name} to go on", err=True, default="", show_default=False) == name
    ):
        return
    click.echo("nothing was changed", err=True)
    raise click.exceptions.Exit(1)


def must_answer(*, yes: bool, flag: str = "--yes") -> None:
    """Raise UsageError when a question will come and nobody is there to answer it."""
    if yes or sys.stdin.isatty():
        return
    raise UsageError(
        "nobody is at a terminal to say yes",
        hint=f"add {flag}",
        changed="nothing was changed",
        code="TPU-102",
    )
