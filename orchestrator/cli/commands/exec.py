"""tpuctl exec: one command on every worker."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive, home_option
from orchestrator.cli.param_types import WORKER, Time


@click.command("exec", cls=Command)
@deployment_options
@click.option(
    "--worker", "workers", type=WORKER, multiple=True, metavar="N|all",
    help="Only this worker; may be repeated.  [default: all]",
)  # fmt: skip
@click.option("--vm", "on_vm", is_flag=True, help="The VM instead of the TPU workers.")
@click.option(
    "--timeout", type=Time(bare="s"), default="10m", show_default=True, metavar="TIME",
    help="For each worker, such as 90s; a number alone is seconds.",
)  # fmt: skip
@exclusive("--worker", "--vm")
@home_option
@click.argument("words", nargs=-1, required=True, metavar="-- COMMAND...")
def command(
    choice: Choice,
    workers: tuple[int | None, ...],
    on_vm: bool,
    timeout: float,
    home: bool,
    words: tuple[str, ...],
) -> None:
    """
    Run a command on all workers in parallel. It fails if it fails on any of them.

    A single word is a whole command line: tpuctl exec -- 'ls | wc -l'.

    It runs in the source folder, as the job's user and with its variables and secrets, in its
    container where the job has an image; --home runs it on the machine itself. When
    a worker failed or was lost, a line at the end says so for each of them.
    """
    from orchestrator.app.machines.workers import run_on_workers
    from orchestrator.cli.views import exec as view
    from orchestrator.cli.views.event_lines import EventPrinter

    reporter = EventPrinter(as_json=choice.as_json)
    only = () if None in workers else tuple(number for number in workers if number is not None)
    found = run_on_workers(choice, words, timeout, reporter, workers=only, on_vm=on_vm, home=home)
    view.show(found, as_json=choice.as_json)
    # A lost machine has no exit code, and None is not success.
    if any(answer.exit_code != 0 for answer in found):
        raise click.exceptions.Exit(1)
