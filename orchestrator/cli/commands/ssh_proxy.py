"""tpuctl ssh-proxy: what the blocks of `tpuctl ssh-config` start; no help lists it."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options


@click.command("ssh-proxy", cls=Command, hidden=True)
@deployment_options
@click.option("--wait", type=float, default=600.0, show_default=True, help="Seconds for a machine to come.")
@click.argument("machine")
def command(choice: Choice, wait: float, machine: str) -> None:
    """Carry standard input and output to the SSH server of MACHINE: w0, w1, ... or vm."""
    from orchestrator.app.machines.ssh_proxy import lead
    from orchestrator.cli.views.event_lines import EventPrinter

    lead(choice, machine, wait, EventPrinter())
