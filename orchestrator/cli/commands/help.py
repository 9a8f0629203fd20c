"""tpuctl help: the help of a command, or what an error code means and what to do about it."""

import click

from orchestrator.cli.console import columns
from orchestrator.cli.main import HELP_WIDTH, RENAMED
from orchestrator.cli.options import Command
from orchestrator.domain.text.suggest import did_you_mean
from orchestrator.errors import UsageError


@click.command("help", cls=Command)
@click.argument("topic", nargs=-1, metavar="[COMMAND | CODE]")
@click.pass_context
def command(ctx: click.Context, topic: tuple[str, ...]) -> None:
    """
    Show the help of a COMMAND, or what an error CODE such as TPU-300 means and what to do about it.

    It needs no network.
    """
    from orchestrator.app.help import code_meaning
    from orchestrator.cli.views.help import code_text

    found = code_meaning(topic[0]) if len(topic) == 1 else None
    width = min(columns(), HELP_WIDTH)
    click.echo(code_text(found, width) if found else _command_help(ctx.find_root(), topic))


def _command_help(root: click.Context, topic: tuple[str, ...]) -> str:
    """
    Return the help of the command named by *topic*, word by word; tpuctl's own for ().

    Raise UsageError for an unknown command.
    """
    context, found = root, root.command
    words = (*RENAMED.get(topic[0], topic[:1]), *topic[1:]) if topic else ()
    for word in (word for word in words if not word.startswith("-")):
        below = found.get_command(context, word) if isinstance(found, click.Group) else None
        if below is None:
            known = found.list_commands(context) if isinstance(found, click.Group) else []
            raise UsageError(
                f"there is no command {' '.join(topic)!r}", hint=did_you_mean(word, known) or "see: tpuctl help",
                changed="nothing was changed", code="TPU-101",
            )  # fmt: skip
        found, context = below, click.Context(below, info_name=word, parent=context)
    return found.get_help(context)
