"""tpuctl secret: put values where the machines read them, without writing them anywhere else."""

import sys

import click

from orchestrator.cli.options import Command, cloud_option, json_option

project_option = click.option("--project", help="Google Cloud project; as for `tpuctl up` when left out.")


@click.group("secret", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Store secrets in Secret Manager, for `job.secrets` and `notify` in the deployment file."""


@command.command("set", short_help="Store a new version of NAME, from standard input.", cls=Command)
@click.argument("name")
@project_option
@cloud_option
@json_option
def store(name: str, project: str | None, cloud: str, as_json: bool) -> None:
    """
    Store a new version of NAME. The value comes from standard input; a terminal asks for it and hides it.

    A single trailing newline is stripped.
    """
    from orchestrator.app.secret import store_secret
    from orchestrator.cli.views import secret as view

    view.show_stored(name, store_secret(name, lambda: _value(name), project, cloud), as_json=as_json)


@command.command("list", cls=Command)
@project_option
@cloud_option
@json_option
def show(project: str | None, cloud: str, as_json: bool) -> None:
    """List the names of the project's secrets. Values are never shown."""
    from orchestrator.app.secret import list_secrets
    from orchestrator.cli.views import secret as view

    view.show_names(list_secrets(project, cloud), as_json=as_json)


def _value(name: str) -> bytes:
    """Read the value of a secret; never from the command line, which all users of a computer can see."""
    if sys.stdin.isatty():
        return str(click.prompt(f"value of {name}", hide_input=True, err=True)).encode()
    # As bytes, to keep a key that is not UTF-8 unchanged.
    value: bytes = sys.stdin.buffer.read()
    return value[:-1] if value.endswith(b"\n") else value
