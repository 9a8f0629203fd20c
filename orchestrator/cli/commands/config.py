"""tpuctl config: each setting as it is used and where it comes from, and the schema of the file."""

import json
from pathlib import Path

import click

from orchestrator.cli.options import Command, VerbGroup, json_option, settings_options


@click.group("config", cls=VerbGroup, plain="show")
def command() -> None:
    """Show each setting and where it comes from, or print the schema of the file. Without a verb: show."""


@command.command("show", cls=Command, short_help="Show each setting and where it comes from. No network.")
@click.option("--all", "everything", is_flag=True, help="Show defaults too.")
@json_option
@settings_options
def show(file: Path | None, settings: tuple[str, ...], everything: bool, as_json: bool) -> None:
    """
    Show each setting with its origin: a flag, a TPUCTL_ variable, a line of the file, or the default.

    A flag wins over a variable, a variable over the file. Secrets are shown by their names only.
    """
    from orchestrator.app.config import read_settings
    from orchestrator.cli.views import config as view

    view.show(read_settings(file, settings, everything=everything), as_json=as_json)


@command.command("schema", cls=Command, short_help="Print the JSON Schema of tpuctl.yaml, for editors.")
@click.argument("document", type=click.Choice(["file", "output"]), default="file")
def schema(*, document: str) -> None:
    """Print the JSON Schema of tpuctl.yaml, for editors; `output`: of what --json prints."""
    from orchestrator.cli.views.json_shapes import output_schema
    from orchestrator.config.schema import json_schema

    click.echo(json.dumps(output_schema() if document == "output" else json_schema(), indent=2))
