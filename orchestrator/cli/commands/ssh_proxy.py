"""tpuctl ssh-proxy: what the blocks of `tpuctl ssh-config` start; no help lists it."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options
from orchestrator.cli.param_types import Time


@click.command("ssh-proxy", cls=Command, hidden=True)
@deployment_options
@click.option(
    "--wait", type=Time(bare="s", zero=True), default="10m", show_default=True, metavar="TIME",
    help="How long a machine may take to come; a number alone is seconds.",
)  # fmt: skip
@click.argument("machine")
def command(choice: Choice, wait: float, machine: str) -> None:
    """Carry standard input and output to the SSH server of MACHINE: w0, w1, ... or vm."""
    from orchestrator.app.machines.ssh_proxy import lead
    from orchestrator.cli.views.event_lines import EventPrinter

    lead(choice, machine, wait, EventPrinter())
