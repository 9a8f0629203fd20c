"""tpuctl cp: a file or a folder to or from a machine."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive
from orchestrator.cli.param_types import WORKER


@click.command("cp", cls=Command)
@deployment_options
@click.option("-r", "--recursive", is_flag=True, help="Copy a folder.")
@click.option(
    "--worker",
    default="0",
    show_default=True,
    type=WORKER,
    metavar="N|all",
    help="The TPU worker, or all.",
)
@click.option("--vm", "on_vm", is_flag=True, help="The VM instead of the TPU.")
@exclusive("--worker", "--vm")
@click.argument("source")
@click.argument("target")
def command(
    choice: Choice, recursive: bool, worker: int | None, on_vm: bool, source: str, target: str
) -> None:  # fmt: skip
    """
    Copy a file or a folder to or from a machine, where its path begins with `:`, `w1:` or `vm:`.

    For example `tpuctl cp notes.txt :data/`, `tpuctl cp -r vm:results .` and `tpuctl cp --worker all :run.log
    logs`, which makes logs/w0, logs/w1, ... A relative path there starts at the source folder. The copy gets
    its name only when it is complete. A file replaces an existing one. A folder replaces nothing: it goes into
    an existing target folder under its own name.
    """
    from orchestrator.app.machines.cp import CopyOptions, copy
    from orchestrator.cli.views import cp as view
    from orchestrator.cli.views.event_lines import EventPrinter

    options = CopyOptions(source, target, worker, on_vm, recursive)
    done = copy(choice, options, EventPrinter(as_json=choice.as_json))
    view.show(done, as_json=choice.as_json)
    if any(one.error for one in done):
        raise click.exceptions.Exit(1)
