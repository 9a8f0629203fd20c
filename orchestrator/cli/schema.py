"""
tpuctl schema: the JSON Schema of the deployment file, or of what --json prints.
"""

import json

import click


@click.command("schema")
@click.option("--output", is_flag=True, help="Of the documents that --json prints, not of tpuctl.yaml.")
def command(*, output: bool) -> None:
    """
    Print the JSON Schema of tpuctl.yaml, for editors; or with --output that of what --json prints.
    """
    from orchestrator.cli.outputs import output_schema
    from orchestrator.config.schema import json_schema

    click.echo(json.dumps(output_schema() if output else json_schema(), indent=2))
