"""tpuctl plan: what `up` would change."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options
from orchestrator.errors import TpuctlError

if TYPE_CHECKING:
    from orchestrator.domain.plan import Plan

CHANGES = 2
"""Exit code of --detailed-exitcode when something would be changed, as `terraform plan` has it."""


@click.command("plan")
@deployment_options
@click.option("--offline", is_flag=True, help="Show `up` from nothing, whatever exists.")
@click.option(
    "--show", type=click.Choice(["scripts"]), help="Also print the scripts that the first machines would run."
)
@click.option(
    "--out",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Look at the cloud, and write what `up` would change there to a file for `tpuctl up FILE`.",
)
@click.option(
    "--detailed-exitcode",
    "detailed",
    is_flag=True,
    help="Leave with 0 when nothing would change, 2 when something would, 1 after any error.",
)
def command(
    choice: Choice, offline: bool, show: str | None,
    out: Path | None, detailed: bool,
) -> None:  # fmt: skip
    """
    Show what `up` would change: where, with which labels, as whom, at what price. Nothing is changed.

    For a deployment that this computer has brought up it looks at what exists. Before that, and with
    --offline, it shows `up` from nothing, and needs no credentials and no network, so it can run in CI.
    """
    if offline and out is not None:
        raise click.UsageError("--out looks at what exists, so --offline does not go with it")
    try:
        plan = _shown(choice, out, scripts=show == "scripts", offline=offline)
    except TpuctlError as error:
        error.exit_code = 1 if detailed else error.exit_code
        raise
    if detailed and not plan.empty:
        click.get_current_context().exit(CHANGES)


def _shown(choice: "Choice", out: Path | None, *, scripts: bool, offline: bool) -> "Plan":
    from orchestrator.app.session import read_spec
    from orchestrator.app.state_folders import is_known

    if out is None and (offline or not is_known(choice.cloud, read_spec(choice)[1].name)):
        from orchestrator.app.preview import preview

        return preview(choice, scripts=scripts)
    from orchestrator.app.plan_file import look_ahead

    return look_ahead(choice, out, scripts=scripts)
