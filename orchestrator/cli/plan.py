"""
tpuctl plan: what `up` would create.
"""

from pathlib import Path

import click

from orchestrator.cli.options import deployment_options


@click.command("plan")
@deployment_options
@click.option(
    "--show", type=click.Choice(["scripts"]), help="Also print the scripts that the machines would run."
)
def command(
    file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool, show: str | None
) -> None:
    """
    Show what `up` creates when nothing exists yet: where, with which labels, as whom, at what price.

    It needs no credentials and no network, so it can run in CI.
    """
    from orchestrator.cli.preview import preview
    from orchestrator.cli.wiring import Choice

    preview(Choice(file, settings, cloud, as_json), scripts=show == "scripts")
