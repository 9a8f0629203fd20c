"""tpuctl ssh-config: the machines for ssh, scp, rsync and editors."""

from pathlib import Path

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive, output_option, yes_option
from orchestrator.cli.questions import confirm


@click.command("ssh-config", cls=Command)
@deployment_options
@output_option(text="Write to this file instead.")
@click.option("--write", is_flag=True, help="Let ~/.ssh/config include them.")
@click.option("--remove", is_flag=True, help="Take back what --write has done.")
@yes_option
@exclusive("--write", "--remove", "--output", hint="choose one")
def command(choice: Choice, output: Path | None, write: bool, remove: bool, yes: bool) -> None:
    """
    Print the machines as Host blocks for OpenSSH: NAME, NAME-w0, NAME-w1, ... and NAME-vm.

    With them ssh, scp, sftp, rsync, git and VS Code's Remote-SSH reach the machines, with the same key and the
    same check of host keys as tpuctl. The blocks stay right after a preemption: each connection asks where the
    machine is now, and waits up to ten minutes for one that is being replaced. With --write one Include line
    goes to the head of ~/.ssh/config, which is copied first.
    """
    from orchestrator.app.machines.ssh_config import exclude, include, ssh_config
    from orchestrator.cli.views import ssh_config as view
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.private_folders import private_file

    reporter = EventPrinter(as_json=choice.as_json)
    if remove:
        view.show_removed(exclude(choice, reporter), as_json=choice.as_json)
        return
    found = ssh_config(choice, reporter)
    if write:
        ask = lambda config: confirm(f"Add an Include line to {config}?", yes=yes)  # noqa: E731
        view.show_included(found, include(choice, found.text, ask, reporter), as_json=choice.as_json)
        return
    if output is not None:
        private_file(output, found.text.encode())
    view.show(found, output, as_json=choice.as_json)
