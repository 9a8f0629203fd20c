"""Print: data to stdout, messages to stderr, without control sequences unless on a terminal."""

import json
import os
import platform
import re
import shutil
import sys
import tempfile
import textwrap
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from orchestrator import __version__
from orchestrator.contract.secrets.redaction import masked
from orchestrator.domain.text.clean_text import clean, indented
from orchestrator.errors import LeaseHeldError, TpuctlError, disk_error

if TYPE_CHECKING:
    from rich.console import Console

# Increased only if a key is removed or changes its meaning, not for new keys.
SCHEMA_VERSION = 1
WIDTH = 9
"""Indentation of the continuation lines of an error."""
quiet = False
"""Set by --quiet: messages are suppressed, results and errors are not."""
# Without line feeds in the class, or it would eat the indentation of the next line.
_PADDED_END = re.compile(r"(?:\x1b\[[\d;]*m| )+(?=\n)")
"""Blanks and colour codes at the end of a line."""


def print_json(kind: str, body: dict[str, Any], *, one_line: bool = False) -> None:
    """Print one JSON document to stdout: indented on a terminal unless *one_line*, otherwise on one line."""
    document = {"schema_version": SCHEMA_VERSION, "kind": kind, **body}
    # One line, so that the output of several commands can be appended and read line by line.
    click.echo(json.dumps(document, indent=2 if sys.stdout.isatty() and not one_line else None))


def columns() -> int:
    """Return the width of stdout in characters, 0 if it is not a terminal."""
    if not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit():
        return 0
    return shutil.get_terminal_size().columns


_COMMAND, _SPACE = re.compile(r"(?<=[Rr]un: )tpuctl [a-z -]+$"), "\ue000"
"""A command at the end of a line, and what stands for its spaces meanwhile."""


def wrapped(lines: list[str], width: int, indent: str, *, break_long: bool = True) -> list[str]:
    """
    Return the lines wrapped between words at *width* (0: not at all), continuations indented.

    A command that ends a line stays whole, so that it can be copied.
    """
    if not width:
        return lines

    def whole(command: re.Match[str]) -> str:
        return command[0].replace(" ", _SPACE if len(indent + command[0]) <= width else " ")

    return [
        part.replace(_SPACE, " ")
        for line in lines
        for part in textwrap.wrap(
            _COMMAND.sub(whole, line),
            width,
            subsequent_indent=indent,
            break_long_words=break_long,
            break_on_hyphens=False,
        )
        or [""]
    ]


def terminal(**settings: Any) -> "Console":
    """Return a rich console for stdout, or for stderr if *settings* says so."""
    # rich takes 40 ms to import, and `status` beside a watcher and `--json` do without it.
    from rich.console import Console

    if os.environ.get("NO_COLOR"):
        # Without colours rich would still emit bold and dim, and colours if FORCE_COLOR is set too.
        settings["color_system"] = None
    return Console(highlight=False, **settings)


@contextmanager
def page() -> "Iterator[Console]":
    """
    Yield a console whose text is written to stdout at the end, without trailing blanks.

    Tables pad their lines with blanks, which get in the way of copying and comparing the text.
    """
    console = terminal()
    with console.capture() as captured:
        yield console
    text = _PADDED_END.sub(lambda end: end[0].replace(" ", ""), captured.get())
    # Cleaned at the end, because table cells contain text of machines and of the cloud.
    sys.stdout.write(clean(text, colours=True))


def put(text: str, *, err: bool = False) -> None:
    """Print a line that may contain text of machines, the job or the cloud; only colour codes pass."""
    click.echo(clean(text, colours=True), err=err)


def say(text: str, *, style: str = "", before: str = "") -> None:
    """Print a result or an error to stderr, in colour if the terminal wants it, in one write with *before*."""
    # Without markup, so that foreign text with [brackets] is printed as it is.
    console = terminal(stderr=True, soft_wrap=True)
    with console.capture() as captured:
        console.print(_at_words(clean(text)), style=style or None, markup=False)
    # Not by the console itself: while a live line is drawn, rich has replaced sys.stderr in order to print
    # above that line.
    sys.stderr.write(before + captured.get())
    sys.stderr.flush()


def _at_words(text: str) -> str:
    """
    Return the text so that the terminal of stderr breaks its lines between words.

    Blanks fill a line that goes on, instead of a line feed: a command that is copied stays one line.
    """
    try:
        width = os.get_terminal_size(sys.stderr.fileno()).columns
    # No terminal, or a stream without a file: the text is read by a program, which wants whole lines.
    except (OSError, ValueError):
        return text
    return "\n".join(_filled(line, width) for line in text.split("\n"))


def _filled(line: str, width: int) -> str:
    indent = " " * (len(line) - len(line.lstrip()) + 2)
    # A word that is longer than the line, as a link, stays whole.
    *full, last = wrapped([line], width, indent, break_long=False)
    return "".join(part + " " * (-len(part) % width) for part in full) + last


def talk(text: str, *, style: str = "", before: str = "") -> None:
    """Print to stderr what --quiet suppresses: activity, costs and next steps."""
    if not quiet:
        say(text, style=style, before=before)


def end_quiet() -> None:
    """Reset --quiet, which must not affect another command of this process."""
    global quiet  # noqa: PLW0603 (one switch for the whole command line, as click has one context)
    quiet = False


def show_error(error: TpuctlError, args: Sequence[str]) -> None:
    """
    Print an expected error: what, what was and was not changed, and the next step.

    Texts that look like tokens are masked, as a message may repeat output of a service or a file.
    """
    if wants_json(args):
        # Masked too, since programs store what they read.
        body = {key: masked(text) if isinstance(text, str) else text for key, text in error.as_dict().items()}
        print_json("error", body)
        return
    # To leave the work to a command that asked for it is no error of the user's.
    yields = isinstance(error, LeaseHeldError) and bool(error.asker)
    text = error.message.rstrip()
    say(
        masked(indented(text if yields else f"error {error.code}: {text}", WIDTH)),
        style="" if yields else "bold red",
    )
    if error.changed:
        say(masked(indented(f"  state: {error.changed}", WIDTH)))
    if error.next_step:
        say(masked(indented(f"  next:  {error.next_step}", WIDTH)))
    if not yields:
        say(f"  more:  tpuctl help {error.code}")


def wants_json(args: Sequence[str]) -> bool:
    """Return whether the command line requests JSON; arguments after `--` belong to another program."""
    own = args[: args.index("--")] if "--" in args else args
    return "--json" in own


def show_unexpected(error: Exception, args: Sequence[str]) -> None:
    """Print an unexpected error: a disk error as such, a bug as one line with its traceback in a file."""
    on_disk = disk_error(error) if isinstance(error, OSError) else None
    if on_disk is not None:
        show_error(on_disk, args)
        return
    try:
        report = f"the file {bug_report_of(error)}"
    # A full disk must not hide the bug, so the traceback then goes to the terminal.
    except OSError:
        say(masked("".join(traceback.format_exception(error))))
        report = "the lines above"
    bug = TpuctlError(
        f"this is a bug in tpuctl: {type(error).__name__}: {error}",
        hint=f"report it with {report}; `tpuctl status` shows what exists",
        changed="not known",
    )
    show_error(bug, args)


def bug_report_of(error: Exception) -> str:
    """Write a bug's traceback to a file and return the path; texts that look like tokens are masked."""
    # Mode 0600 and an unpredictable name, as tracebacks contain paths and values.
    from orchestrator.app.this_computer.state_folders import bug_prefix

    with tempfile.NamedTemporaryFile("w", prefix=bug_prefix(), suffix=".txt", delete=False) as file:
        file.write(f"tpuctl {__version__}, Python {platform.python_version()}, {platform.platform()}\n")
        file.write(masked("".join(traceback.format_exception(error))))
    return file.name
