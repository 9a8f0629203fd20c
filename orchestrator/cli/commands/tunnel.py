"""tpuctl tunnel: a port of this computer that leads to a service on a machine."""

from functools import partial

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive


@click.command("tunnel", cls=Command)
@deployment_options
@click.option(
    "--port",
    type=click.IntRange(1, 65535),
    help="Port of this computer. Default: the service's own, or a free one.",
)
@click.option("--vm", "on_vm", is_flag=True, help="With PORT: the VM instead of the TPU.")
@click.option("--worker", type=int, default=0, show_default=True, help="With PORT: number of the TPU worker.")
@exclusive("--worker", "--vm")
@click.option("--open", "browse", is_flag=True, help="Open the address in a browser.")
@click.argument("service", metavar="tensorboard|jupyter|PORT")
def command(choice: Choice, port: int | None, on_vm: bool, worker: int, browse: bool, service: str) -> None:
    """
    Reach a service that listens on a machine's loopback address, over SSH, at 127.0.0.1 of this computer.

    tensorboard and jupyter are those of `sidecars:` in the deployment file. The tunnel stays open until
    Ctrl-C and comes back when the machine was replaced.
    """
    from orchestrator.app.machines.tunnel import open_tunnel
    from orchestrator.cli.views import tunnel as view
    from orchestrator.cli.views.event_lines import EventPrinter

    opened = partial(view.show, as_json=choice.as_json)
    open_tunnel(choice, service, port, opened, EventPrinter(), worker=worker, on_vm=on_vm, browse=browse)
