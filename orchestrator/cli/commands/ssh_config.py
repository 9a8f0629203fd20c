"""tpuctl ssh-config: the machines for ssh, scp, rsync and editors."""

from pathlib import Path

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import Command, deployment_options


@click.command("ssh-config", cls=Command)
@deployment_options
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file instead."
)
def command(choice: Choice, output: Path | None) -> None:
    """
    Print the machines as Host blocks for OpenSSH: NAME-w0, NAME-w1, ... and NAME-vm.

    With them ssh, scp, rsync and VS Code's Remote-SSH reach the machines, with the same key and the same check
    of host keys as tpuctl. Run it again after a preemption: the new machine has another address. To use a file
    for good, write `Include FILE` at the top of ~/.ssh/config.
    """
    from orchestrator.app.workers import machines_for_ssh
    from orchestrator.cli.console import print_json, say
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.private_folders import private_file

    text, names = machines_for_ssh(choice, EventPrinter(as_json=choice.as_json))
    if output is not None:
        private_file(output, text.encode())
    if choice.as_json:
        print_json("ssh-config", {"hosts": names, "config": text, "file": str(output) if output else None})
    elif output is None:
        click.echo(text, nl=False)
    else:
        say(f"{output}: {', '.join(names)}")
        say(f"  next:  ssh -F {output} {names[0]}")
