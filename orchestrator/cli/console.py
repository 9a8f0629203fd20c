"""Where words go: data to stdout, talk to stderr, plain lines when nobody looks at a terminal."""

import json
import os
import platform
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from orchestrator import __version__
from orchestrator.contract.redaction import masked
from orchestrator.domain.clean_text import clean, indented
from orchestrator.engine.atomic_files import disk_trouble
from orchestrator.errors import TpuctlError

if TYPE_CHECKING:
    from rich.console import Console

# Goes up only when a key is removed or changes its meaning; new keys leave it as it is.
SCHEMA_VERSION = 1
WIDTH = 9
"""Blanks before the further lines of an error's text."""
quiet = False
"""What --quiet sets: talk is left out, results and errors stay."""
# The class matches no line feed, or blanks at the beginning of the next line would go too.
_PADDED_END = re.compile(r"(?:\x1b\[[\d;]*m| )+(?=\n)")
"""Blanks, and what sets colours, at the end of a line."""


def print_json(kind: str, body: dict[str, Any]) -> None:
    """Print one JSON document to stdout: indented on a terminal, elsewhere on a line of its own."""
    document = {"schema_version": SCHEMA_VERSION, "kind": kind, **body}
    # One line where no terminal is: `--json` of several commands can be appended and read line by line.
    click.echo(json.dumps(document, indent=2 if sys.stdout.isatty() else None))


def columns() -> int:
    """Return how many characters a line of stdout may have; 0 when nobody reads it on a terminal."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return 0
    return shutil.get_terminal_size().columns


def terminal(**settings: Any) -> "Console":
    """Return rich's console for stdout, or with *stderr* for talk."""
    # rich takes 40 ms to import: `status` beside a watcher and `--json` print without it.
    from rich.console import Console

    if os.environ.get("NO_COLOR"):
        # rich would leave bold and dim, and colours where FORCE_COLOR is set too.
        settings["color_system"] = None
    return Console(highlight=False, **settings)


@contextmanager
def page() -> "Iterator[Console]":
    """
    Give a console for stdout; all of it is written at the end, with no blanks at the ends of the lines.

    Tables fill their lines with blanks, which get in the way when somebody copies or compares the text.
    """
    console = terminal()
    with console.capture() as captured:
        yield console
    text = _PADDED_END.sub(lambda end: end[0].replace(" ", ""), captured.get())
    # Cleaned at the end: the cells of a table hold what machines and the cloud have said.
    sys.stdout.write(clean(text, colours=True))


def put(text: str, *, err: bool = False) -> None:
    """Print a line that may repeat what machines, the job or the cloud have said; colours stay, no more."""
    click.echo(clean(text, colours=True), err=err)


def say(text: str, *, style: str = "") -> None:
    """Print a result or an error to stderr, in colour on a terminal that wants it."""
    # Without markup: a text with [brackets] of others is text.
    console = terminal(stderr=True, soft_wrap=True)
    with console.capture() as captured:
        console.print(clean(text), style=style or None, markup=False)
    # Not by the console itself, which would write into a live line: while one is drawn, rich has put what
    # prints above it in the place of sys.stderr.
    sys.stderr.write(captured.get())
    sys.stderr.flush()


def talk(text: str, *, style: str = "") -> None:
    """Print to stderr what --quiet leaves out: what goes on, what it costs, what could come next."""
    if not quiet:
        say(text, style=style)


def end_quiet() -> None:
    """Talk again: another command of the same process may be a talkative one."""
    global quiet  # noqa: PLW0603 (one switch for the whole command line, as click has one context)
    quiet = False


def show_error(error: TpuctlError, args: Sequence[str]) -> None:
    """
    Print an expected error: what, what was and was not changed, what to do next.

    What looks like a token in it is masked: a message may repeat what a service or a file said.
    """
    if wants_json(args):
        # Programs keep what they read: JSON is masked as the text is.
        body = {key: masked(text) if isinstance(text, str) else text for key, text in error.as_dict().items()}
        print_json("error", body)
        return
    say(masked(indented(f"error {error.code}: {error.message.rstrip()}", WIDTH)), style="bold red")
    if error.changed:
        say(masked(indented(f"  state: {error.changed}", WIDTH)))
    if error.hint:
        say(masked(indented(f"  next:  {error.hint}", WIDTH)))
    say(f"  more:  tpuctl help {error.code}")


def wants_json(args: Sequence[str]) -> bool:
    """Say whether the command line asks for JSON; what follows `--` is for another program."""
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own


def show_unexpected(error: Exception, args: Sequence[str]) -> None:
    """Print what nobody had foreseen: the disk's trouble as such, a bug in one line, its story in a file."""
    trouble = disk_trouble(error) if isinstance(error, OSError) else None
    if trouble is not None:
        show_error(trouble, args)
        return
    try:
        story = f"the file {story_of(error)}"
    # A full disk must not hide the bug: what cannot be written goes to the terminal.
    except OSError:
        say(masked("".join(traceback.format_exception(error))))
        story = "the lines above"
    bug = TpuctlError(
        f"this is a bug in tpuctl: {type(error).__name__}: {error}",
        hint=f"please report it with {story}; `tpuctl status` shows what exists",
        changed="not known",
    )
    show_error(bug, args)


def story_of(error: Exception) -> str:
    """Write the whole story of a bug to a file and return its path; what looks like a token is masked."""
    # Made with mode 0600 under a name that nobody can foresee: tracebacks hold paths and values.
    from orchestrator.app.state_folders import bug_prefix

    with tempfile.NamedTemporaryFile("w", prefix=bug_prefix(), suffix=".txt", delete=False) as file:
        file.write(f"tpuctl {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
        file.write(masked("".join(traceback.format_exception(error))))
    return file.name
