"""tpuctl ssh: a shell on a worker or on the VM."""

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options


@click.command("ssh")
@deployment_options
@click.option("--worker", type=int, default=0, show_default=True, help="Number of the TPU worker.")
@click.option("--vm", "on_vm", is_flag=True, help="The VM instead of the TPU.")
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]")
def command(
    choice: Choice, worker: int, on_vm: bool,
    words: tuple[str, ...],
) -> None:  # fmt: skip
    """Open a shell, or run one command. The machine must show the host key that the cloud's API reports."""
    import shlex

    from orchestrator.app.session import Session
    from orchestrator.app.workers import the_vm, worker_hosts
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.errors import UsageError

    session = Session(choice, EventPrinter(as_json=choice.as_json))
    hosts = [the_vm(session)] if on_vm else worker_hosts(session)
    if not on_vm and not 0 <= worker < len(hosts):
        raise UsageError(f"--worker {worker}: there are workers 0 to {len(hosts) - 1}", code="TPU-132")
    host = hosts[0] if on_vm else hosts[worker]
    raise click.exceptions.Exit(session.ssh.shell(host, shlex.join(words) if words else None))
