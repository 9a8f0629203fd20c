"""
tpuctl schema: the JSON Schema of the deployment file.
"""

import json

import click


@click.command("schema")
def command() -> None:
    """
    Print the JSON Schema of tpuctl.yaml, for editors.
    """
    from orchestrator.config.schema import json_schema

    click.echo(json.dumps(json_schema(), indent=2))
