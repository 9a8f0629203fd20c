"""tpuctl cp: one file to or from a machine."""

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import Command, deployment_options


@click.command("cp", cls=Command)
@deployment_options
@click.option("--worker", type=int, default=0, show_default=True, help="Number of the TPU worker.")
@click.option("--vm", "on_vm", is_flag=True, help="The VM instead of the TPU.")
@click.argument("source")
@click.argument("target")
def command(choice: Choice, worker: int, on_vm: bool, source: str, target: str) -> None:
    """
    Copy a file to or from a machine, where its path begins with a colon.

    For example `tpuctl cp notes.txt :data/` and `tpuctl cp :run.log .`. A relative path there is one of the
    job's folder. The copy is compared by its checksum, and has its name only when it is complete. For
    whole folders use scp or rsync with `tpuctl ssh-config`.
    """
    from orchestrator.app.workers import copy
    from orchestrator.cli.console import print_json, say
    from orchestrator.cli.views.event_lines import EventPrinter

    done = copy(choice, worker, source, target, EventPrinter(as_json=choice.as_json), on_vm=on_vm)
    if choice.as_json:
        print_json(
            "cp", {"machine": done.machine, "source": source, "target": done.target, "bytes": done.size}
        )
    else:
        say(f"{source} -> {done.target} ({done.machine}, {done.size:,} bytes, checksum verified)")
