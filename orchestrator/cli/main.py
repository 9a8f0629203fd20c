"""Define the entry point: it knows all command names and imports only the command that runs."""

import gc
import importlib
import os
import select
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

from orchestrator import __version__
from orchestrator.cli.options import (
    cloud_option,
    json_option,
    override_option,
    refuse_misplaced,
    settings_options,
    talk_options,
    write_options,
)
from orchestrator.errors import Interrupted, TpuctlError, UsageError

GROUPS = {
    "Start": {
        "demo": "Run a whole deployment on the local cloud, with preemptions.",
        "init": "Write a commented tpuctl.yaml, or copy a recipe.",
        "zones": "List the types of TPU, with their zones and prices.",
        "check": "Find what loses data, time or money on a TPU. No network.",
        "plan": "Show what `up` would change, where, and what it costs.",
        "rehearse": "Kill your job's machines on this computer: does it recover?",
    },
    "Run": {
        "up": "Create bucket, VM and TPU, push the job and start it.",
        "adopt": "Adopt a TPU, a VM or a bucket that was made without tpuctl.",
        "watch": "Keep the job alive through preemptions until it is done.",
        "push": "Send new code to the running job, which resumes.",
        "fleet": "Run many jobs on many TPUs, with a queue.",
        "down": "Delete the machines; data stays unless you say so.",
    },
    "Look": {
        "status": "Show what exists and how far the job is; -f keeps it current.",
        "logs": "Show the job's log, across machines.",
        "explain": "Say why the deployment is in its state, and what comes next.",
        "cost": "Show what was spent: by resource, zone, day and use.",
        "report": "Write the deployment's story as one HTML page.",
        "checkpoints": "List what is saved, or copy the model to this computer.",
    },
    "Reach the machines": {
        "ssh": "Open a shell on a worker or on the VM.",
        "exec": "Run a command on every worker.",
        "cp": "Copy a file or a folder to or from a machine.",
        "ssh-config": "Let ssh, scp, rsync and VS Code reach the machines.",
        "tunnel": "Reach TensorBoard, JupyterLab or a port of a machine.",
    },
    "Set up": {
        "doctor": "Look for what is missing or wrong, here and in the project.",
        "config": "Show each setting and where it comes from. No network.",
        "secret": "Store the job's secrets where only its machines read them.",
        "notify": "Test notifications.",
        "prices": "Read the prices of TPUs from Google's billing catalogue.",
        "selftest": "Run all of tpuctl once on the cloud, and leave nothing.",
        "export": "Write the deployment as plain scripts, or for JobSet, SkyPilot or Ray.",
        "support": "Write an archive for a bug report; nothing is sent.",
        "local": "Manage the local cloud, and inject faults.",
        "help": "Show the help of a command, or what an error code means.",
    },
}
UNLISTED = {"completion": "Print the completion script for your shell."}
"""Commands left out of the list of `tpuctl --help`, since they are needed once per computer."""
COMMANDS = {name: text for group in (*GROUPS.values(), UNLISTED) for name, text in group.items()}
HIDDEN = ("ssh-proxy",)
"""Commands that other programs start; no help lists them."""
RENAMED = {
    "top": ("status", "--all", "-f"),
    "dashboard": ("report", "--live"),
    "fetch": ("checkpoints", "fetch"),
    "schema": ("config", "schema"),
}
"""Former command names; they still work and print their new name."""


ELSEWHERE = {
    "up": ("apply", "create", "deploy", "launch", "provision", "run", "start", "submit"),
    "down": ("cancel", "delete", "destroy", "kill", "remove", "rm", "stop", "teardown", "terminate"),
    "status --all": ("list", "ls", "ps", "queue"),
    "status": ("describe", "info", "show"),
    "check": ("lint", "validate", "verify"),
    "watch": ("babysit", "monitor", "recover", "resume"),
    "push": ("redeploy", "restart", "sync", "update"),
    "checkpoints fetch": ("download", "get", "pull"),
    "cp": ("rsync", "scp"),
    "exec": ("ssh-all",),
    "ssh": ("attach", "connect", "login", "shell"),
    "tunnel": ("forward", "jupyter", "notebook", "port-forward", "proxy", "tensorboard"),
    "logs -f": ("follow", "output", "tail"),
    "init": ("new", "recipe", "recipes"),
    "demo": ("quickstart", "tutorial"),
    "help": ("commands", "man"),
    "--version": ("version",),
}
"""Words from other tools, with the command that they mean here; used for hints only."""

HELP_WIDTH = 100
"""Most columns of a help."""
_UNBROKEN = "\N{NON-BREAKING HYPHEN}"
READER_GONE = 141
"""Exit code for SIGPIPE as shells report it; 0 would make a truncated output look complete."""


class HelpText(click.HelpFormatter):
    """A help that is not wrapped at the hyphens of options, as in `--delete-data`."""

    def write_text(self, text: str) -> None:
        """Write a paragraph."""
        super().write_text(text.replace("-", _UNBROKEN))

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write terms and their texts in two columns."""
        super().write_dl([(term, text.replace("-", _UNBROKEN)) for term, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """Return the whole help."""
        return super().getvalue().replace(_UNBROKEN, "-")


click.Context.formatter_class = HelpText


class LazyGroup(click.Group):
    """A group that imports a command's module only when that command runs."""

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.params += talk_options()

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the commands in the order in which a deployment needs them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, None if there is none of that name."""
        if cmd_name not in COMMANDS and cmd_name not in HIDDEN:
            return None
        # `tpuctl --help` names all commands and imports none.
        module = importlib.import_module(f"orchestrator.cli.commands.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Return the commands that start with *incomplete*, for shell completion, without importing them."""
        from click.shell_completion import CompletionItem

        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        found = ((name, text) for name, text in COMMANDS.items() if name.startswith(incomplete))
        return [CompletionItem(name, help=text) for name, text in found]

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Resolve a command; a similar name raises UsageError with a hint, a former name works with a note."""
        if args and args[0] in RENAMED:
            now = RENAMED[args[0]]
            read = {"--json", "-q", "--quiet"} & set(args) or ctx.params.get("as_json") or ctx.params["quiet"]
            if not read and not ctx.resilient_parsing:
                click.echo(f"`tpuctl {args[0]}` is now `tpuctl {' '.join(now)}`", err=True)
            args = [*now, *args[1:]]
        if args and args[0] not in COMMANDS and args[0] not in HIDDEN:
            meant = _meant(args[0])
            hint = f"did you mean `tpuctl {meant}`?" if meant else "see: tpuctl --help"
            raise UsageError(
                f"there is no command {args[0]!r}", hint=hint, changed="nothing was changed", code="TPU-101"
            )
        name, command, rest = super().resolve_command(ctx, args)
        if command is not None and not isinstance(command, click.Group):
            refuse_misplaced(ctx, command)
        return name, command, rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the help: its own options, the commands, the options allowed before each command."""
        write_options(self, ctx, formatter, "Options", shared=False)
        self.format_commands(ctx, formatter)
        write_options(self, ctx, formatter, "Common options, before or after the command", shared=True)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their groups, without importing any of them."""
        width = max(len(name) for commands in GROUPS.values() for name in commands)
        for title, commands in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name.ljust(width), text) for name, text in commands.items()])


def _meant(word: str) -> str:
    """Return the command that *word* is another tool's name for or a misspelling of, else ""."""
    import difflib

    here = {other: ours for ours, others in ELSEWHERE.items() for other in others}
    if word.lower() in here:
        return here[word.lower()]
    found = next(iter(difflib.get_close_matches(word, [*COMMANDS, *RENAMED], n=1)), "")
    return " ".join(RENAMED.get(found, (found,)))


@click.group(
    cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": HELP_WIDTH}
)
@click.version_option(__version__, prog_name="tpuctl")
@settings_options
@cloud_option
@json_option
@override_option
def cli(**_: object) -> None:
    """
    Turn a training script into a finished model on preemptible Cloud TPUs.

    \b
    First contact, with no cloud account:  tpuctl demo
    Your own job:                          tpuctl init, plan, up, watch, down
    """  # noqa: D301 (click reads the character, so the text cannot be raw)


ALLOCATIONS = 50_000
"""Objects that are made before Python looks for garbage; its own 700 makes it look while it imports."""


def main(args: list[str] | None = None) -> None:
    """Run a command and exit with its status."""
    # A fifth of a command's computing was a search through a thousand modules, which are never garbage.
    gc.set_threshold(ALLOCATIONS)
    status = run(args)
    # Last: looking for a release must not change the status of the command.
    if sys.stderr is not None and sys.stderr.isatty():
        from orchestrator.cli.new_version import report_newer

        report_newer(sys.argv[1:] if args is None else args, __version__)
    # The same search once more at the end of the process, just before all memory is freed.
    gc.freeze()
    sys.exit(status)


def run(args: list[str] | None = None) -> int:
    """Run a command and return its exit code; handles expected errors, interrupts and bugs."""
    try:
        status = _run(sys.argv[1:] if args is None else args)
        # Flush here, where a closed pipe can still be handled.
        for stream in filter(None, (sys.stdout, sys.stderr)):
            stream.flush()
    except (BrokenPipeError, SystemExit):
        # Both click and rich turn a write to a closed pipe into SystemExit(1).
        if not _reader_gone():
            raise
        return READER_GONE
    return status


def _reader_gone() -> bool:
    """Return whether the reader of our output, such as `head`, has ended; if so, discard further output."""
    gone = [fd for fd in (1, 2) if _closed(fd)]
    for fd in gone:
        # Python flushes both streams at exit and would report the error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
    return bool(gone)


def _closed(fd: int) -> bool:
    watch = select.poll()
    watch.register(fd, 0)
    return any(event & select.POLLERR for _, event in watch.poll(0))


def _run(words: list[str]) -> int:
    try:
        # Without standalone mode, click returns the status of Exit instead of raising it.
        status = cli.main(args=list(words), prog_name="tpuctl", standalone_mode=False)
    except TpuctlError as error:
        return _failed(error, words)
    except Interrupted as interrupt:
        from orchestrator.cli.console import say

        _leave_the_sign()
        say(f"interrupted; {interrupt.state}")
        say(f"  next:  {interrupt.next_step}")
        return 130
    except click.Abort:
        _leave_the_sign()
        click.echo("interrupted", err=True)
        return 130
    except click.ClickException as error:
        if isinstance(error, click.exceptions.NoArgsIsHelpError):
            error.show()
            return error.exit_code
        return _failed(_in_our_words(error), words)
    except Exception as error:
        from orchestrator.cli.console import show_unexpected

        show_unexpected(error, words)
        return 1
    return status if isinstance(status, int) else 0


def _leave_the_sign() -> None:
    """Begin a new line on a terminal, which shows `^C` where the cursor was."""
    if sys.stderr is not None and sys.stderr.isatty():
        click.echo(err=True)


def _failed(error: TpuctlError, words: Sequence[str]) -> int:
    from orchestrator.cli.console import show_error

    show_error(error, words)
    return error.exit_code


def _in_our_words(error: click.ClickException) -> UsageError:
    """Convert click's error about the command line to a UsageError."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "tpuctl"
    message, hint = error.format_message(), f"see: {path} --help"
    if isinstance(error, click.NoSuchOption):
        # Without click's suggestions, which have far guesses among them.
        message = f"`{path}` has no option {error.option_name}"
        hint = _near_options(error.option_name, context) or hint
    return UsageError(message, hint=hint, changed="nothing was changed", code="TPU-101")


def _near_options(name: str, context: click.Context | None) -> str:
    """Return the hint that names the options near *name* that the command has, "" if there is none."""
    from orchestrator.domain.text.suggest import closest, join

    params = context.command.params if context is not None and name.startswith("--") else []
    shown = [one for one in params if isinstance(one, click.Option) and not one.hidden]
    long = [word[2:] for one in shown for word in (*one.opts, *one.secondary_opts) if word.startswith("--")]
    near = closest(name[2:], [*long, "help"])
    return f"did you mean {join(f'--{word}' for word in near)}?" if near else ""
