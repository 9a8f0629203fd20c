"""What a command says when Ctrl-C ends it: what stays as it is, and how to go on."""

from collections.abc import Iterator
from contextlib import contextmanager

import click

from orchestrator.cli.console import say


@contextmanager
def leaving(state: str, next_step: str) -> Iterator[None]:
    """End the command with 130 when somebody presses Ctrl-C inside, and say *state* and *next_step*."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"interrupted; {state}")
        say(f"  next:  {next_step}")
        raise click.exceptions.Exit(130) from None
