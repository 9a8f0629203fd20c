"""tpuctl ssh: a shell on a worker or on the VM."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive, home_option


@click.command("ssh", cls=Command)
@deployment_options
@click.option("--worker", type=int, default=0, show_default=True, help="Number of the TPU worker.")
@click.option("--vm", "on_vm", is_flag=True, help="The VM instead of the TPU.")
@exclusive("--worker", "--vm")
@home_option
@click.argument("words", nargs=-1, metavar="[-- COMMAND...]")
def command(choice: Choice, worker: int, on_vm: bool, home: bool, words: tuple[str, ...]) -> None:
    """
    Open a shell, or run one command, in the source folder.

    A single word is a whole command line: tpuctl ssh -- 'ls | wc -l'.

    It runs as the job's user, has the job's variables and secrets, and is in its container where the job has an
    image (job.image). --home opens the machine and the login's home instead.
    The machine must show the host key that the cloud's API reports.
    """
    from orchestrator.app.machines.workers import open_shell
    from orchestrator.cli.views.event_lines import EventPrinter

    reporter = EventPrinter(as_json=choice.as_json)
    raise click.exceptions.Exit(open_shell(choice, worker, words, reporter, on_vm=on_vm, home=home))
