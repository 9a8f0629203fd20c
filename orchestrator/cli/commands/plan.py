"""tpuctl plan: what `up` would change."""

from pathlib import Path

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive, output_option
from orchestrator.errors import TpuctlError

CHANGES = 2
"""Exit code of --detailed-exitcode if something would change, as in `terraform plan`."""


@click.command("plan", cls=Command)
@deployment_options
@click.option("-v", "--verbose", is_flag=True, help="Also show labels and scopes.")
@click.option("--offline", is_flag=True, help="Show `up` from nothing, whatever exists.")
@click.option(
    "--show", type=click.Choice(["scripts"]), help="Also print the scripts that the first machines would run."
)
@output_option(
    text="Look at the cloud, and write what `up` would change there to a file for `tpuctl up FILE`."
)
@click.option(
    "--detailed-exitcode",
    "detailed",
    is_flag=True,
    help="Exit with 0 when nothing would change, 2 when something would, 1 after any error.",
)
@exclusive("--output", "--offline", hint="--output reads what exists: leave one of them out")
def command(
    choice: Choice, verbose: bool, offline: bool, show: str | None,
    output: Path | None, detailed: bool,
) -> None:  # fmt: skip
    """
    Show what `up` would change: at what price, where, as whom. Nothing is changed.

    For a deployment that this computer has brought up it reads what exists. Before that, and with
    --offline, it shows `up` from nothing, and needs no credentials and no network, so it can run in CI.
    """
    from orchestrator.app.plan import plan
    from orchestrator.cli.views import plan as plan_view
    from orchestrator.cli.views.event_lines import EventPrinter

    scripts = show == "scripts"
    try:
        found = plan(choice, EventPrinter(), out=output, scripts=scripts, offline=offline)
    except TpuctlError as error:
        # 2 means "something would change", so an error must not have that exit code.
        error.exit_code = 1 if detailed else error.exit_code
        raise
    unbilled = choice.cloud == "local"
    plan_view.show(found, as_json=choice.as_json, scripts=scripts, verbose=verbose, unbilled=unbilled)
    if detailed and not found.preview.plan.empty:
        # After all output, since 2 is a result and no error.
        click.get_current_context().exit(CHANGES)
