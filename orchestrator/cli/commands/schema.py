"""tpuctl schema: the JSON Schema of the deployment file, or of what --json prints."""

import json

import click

from orchestrator.cli.views.documents import output_schema
from orchestrator.config.schema import json_schema


@click.command("schema")
@click.argument("document", type=click.Choice(["file", "output"]), default="file")
def command(*, document: str) -> None:
    """Print the JSON Schema of tpuctl.yaml, for editors; `schema output`: of what --json prints."""
    click.echo(json.dumps(output_schema() if document == "output" else json_schema(), indent=2))
