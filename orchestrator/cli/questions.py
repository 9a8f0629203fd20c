"""Ask questions on the terminal that approve money or a deletion."""

import sys
import termios
from contextlib import suppress

import click


def approved(question: str, *, abort: bool = False) -> bool:
    """Ask a question on the terminal; return whether the answer is yes. *abort* ends the command at a no."""
    forget_typed_ahead()
    # On stderr, since stdout may be piped.
    return click.confirm(question, err=True, abort=abort)


def forget_typed_ahead() -> None:
    """Discard what was typed before a question: it answers something else, and could approve a deletion."""
    with suppress(OSError, ValueError, termios.error):
        if sys.stdin.isatty():
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
