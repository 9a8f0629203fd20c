"""tpuctl completion: words for the shell, names of deployments among them."""

import sys

import click
from click.shell_completion import get_completion_class

from orchestrator.cli.console import talk
from orchestrator.cli.options import Command

LINES = {
    "bash": 'add to ~/.bashrc:  eval "$(tpuctl completion bash)"',
    "zsh": 'add to ~/.zshrc:  eval "$(tpuctl completion zsh)"',
    "fish": "run once:  tpuctl completion fish > ~/.config/fish/completions/tpuctl.fish",
}


@click.command("completion", cls=Command)
@click.argument("shell", type=click.Choice(sorted(LINES)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that makes SHELL complete commands, options and the names of your deployments."""
    kind = get_completion_class(shell)
    if kind is None:
        raise click.UsageError(f"click knows no completion for {shell}")
    click.echo(kind(ctx.find_root().command, {}, "tpuctl", "_TPUCTL_COMPLETE").source())
    # Only on a terminal: otherwise a shell evaluates the output or a file receives it.
    if sys.stdout.isatty():
        talk(f"  next:  {LINES[shell]}")
