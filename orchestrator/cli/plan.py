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
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Look at the cloud, and write what `up` would change there to a file for `tpuctl up FILE`.",
)
def command(
    file: Path | None, settings: tuple[str, ...], cloud: str, as_json: bool, show: str | None,
    out: Path | None,
) -> None:  # fmt: skip
    """
    Show what `up` creates when nothing exists yet: where, with which labels, as whom, at what price.

    It needs no credentials and no network, so it can run in CI. With --out it looks at what exists.
    """
    from orchestrator.cli.preview import preview
    from orchestrator.cli.wiring import Choice

    if out is not None:
        from orchestrator.cli.plan_file import write_plan

        write_plan(Choice(file, settings, cloud, as_json), out)
        return
    preview(Choice(file, settings, cloud, as_json), scripts=show == "scripts")
