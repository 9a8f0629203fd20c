"""Ask questions on the terminal that approve money or a deletion."""

import sys
import termios
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from typing import Generic, TypeVar

import click

from orchestrator.cli.console import say, talk
from orchestrator.domain.observation import Node, Vm
from orchestrator.errors import LeaseHeldError, UsageError

Price = TypeVar("Price")


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


DELETE_MACHINES = "Delete the machines?"
DELETE_DATA = "The data cannot be brought back."


def confirm(question: str, *, yes: bool, flag: str = "--yes") -> None:
    """Ask for a confirmation on the terminal; "no" exits with status 1."""
    must_answer(yes=yes, flag=flag, asks=question)
    if yes or approved(question):
        return
    click.echo("nothing was changed", err=True)
    raise click.exceptions.Exit(1)


def confirm_name(name: str, question: str, *, yes: bool) -> None:
    """Ask on the terminal to type *name*, where a "yes" is too quick; any other text exits with status 1."""
    must_answer(yes=yes, asks=question)
    if yes:
        return
    forget_typed_ahead()
    # No default, so that an empty line is a no.
    asked = f"{question} Type '{name}' to confirm"
    if click.prompt(asked, err=True, default="", show_default=False) == name:
        return
    click.echo(f"nothing was changed: the answer was not '{name}'", err=True)
    raise click.exceptions.Exit(1)


def confirm_deletion(*, yes: bool) -> Callable[[str, bool], None]:
    """Return a function that asks before a deletion: for the name if data is deleted, else for a yes."""

    def approve(name: str, data_goes: bool) -> None:
        # The name instead of "yes": deleting checkpoints must not be a matter of habit.
        if data_goes:
            confirm_name(name, DELETE_DATA, yes=yes)
        else:
            confirm(DELETE_MACHINES, yes=yes)

    return approve


def must_answer(*, yes: bool, flag: str = "--yes", asks: str) -> None:
    """Raise UsageError if the question *asks* will follow and there is no terminal to answer it."""
    if yes or sys.stdin.isatty():
        return
    raise UsageError(
        f"cannot ask without a terminal: {asks}",
        hint=f"to answer yes, repeat the command with {flag}",
        changed="nothing was changed",
        code="TPU-102",
    )


class PriceQuestion(Generic[Price]):
    """
    What `up` asks before the first machine: *show* prints a price, and if *asks*, a "no" ends the command.

    Nothing else is printed meanwhile: it is shown and asked within *asking*.
    """

    def __init__(
        self, asking: Callable[[], AbstractContextManager[None]],
        show: Callable[[Price, Callable[..., None]], None], *, asks: bool,
    ) -> None:  # fmt: skip
        self._asking, self._show, self._asks = asking, show, asks

    def approve(self, price: Price) -> None:
        """Show the price. Raise Exit on a no."""
        with self._asking():
            # A price that is asked about is shown with --quiet, too.
            self._show(price, say if self._asks else talk)
            if self._asks:
                confirm("Go on?", yes=False)


class DownQuestions:
    """
    What `down` asks before something goes; *yes* is the answer to all of it.

    Each question is asked within *asking*, in which nothing else is printed.
    """

    def __init__(self, asking: Callable[[], AbstractContextManager[None]], *, yes: bool) -> None:
        self._asking, self._yes = asking, yes

    def approve(self, name: str, data_goes: bool) -> None:
        """Ask before a deletion. Raise Exit on a no."""
        with self._asking():
            if data_goes and not self._yes:
                # With --yes the data is already going: advice about what to do first would come too late.
                say("  `tpuctl report` needs these data: run it first to keep its page")
            confirm_deletion(yes=self._yes)(name, data_goes)

    def go_on(self, held: LeaseHeldError) -> None:
        """Ask whether to delete while another process holds the lease. Raise Exit on a no."""
        with self._asking():
            say(f"{held.message}; if it still works, it may make machines again")
            confirm("Go on without the lease?", yes=self._yes)

    def keep(self, machines: Sequence[Node | Vm]) -> bool:
        """Ask whether adopted *machines* are given back; *yes* does, since a deletion is for good."""
        if self._yes:
            return True
        names = ", ".join(node.name for node in machines)
        with self._asking():
            return not approved(f"tpuctl has not made {names}. Delete it too?")
