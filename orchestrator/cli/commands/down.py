"""tpuctl down: delete everything that tpuctl made."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.console import say
from orchestrator.cli.options import (
    DELETE_DATA,
    DELETE_MACHINES,
    Command,
    confirm,
    confirm_deletion,
    deployment_options,
    must_answer,
    yes_option,
)
from orchestrator.cli.questions import approved
from orchestrator.domain.observation import Node, Vm
from orchestrator.errors import LeaseHeldError

if TYPE_CHECKING:
    from orchestrator.cli.views.still import Still


@click.command("down", cls=Command)
@deployment_options
@yes_option
@click.option(
    "--take-over", is_flag=True, help="Delete although another tpuctl holds the lease; it is named first."
)
@click.option("--delete-data", is_flag=True, help="Delete the bucket too: checkpoints, logs, everything.")
@click.option(
    "--adopted",
    type=click.Choice(["keep", "delete"]),
    help="What becomes of an adopted TPU or VM. Default: as said then, else ask; keep without a terminal.",
)
def command(choice: Choice, yes: bool, delete_data: bool, take_over: bool, adopted: str | None) -> None:
    """
    Delete TPU and VM, then list by label what is left. The bucket's data stays without --delete-data.

    It can be run again at any time, and finds its resources by label even without a record.
    """
    from orchestrator.app.down import take_down
    from orchestrator.cli.views import down as view
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.cli.views.still import Still

    # Before any call to the cloud, so that a script which cannot answer fails at once.
    must_answer(yes=yes, asks=f"{DELETE_MACHINES} {DELETE_DATA}" if delete_data else DELETE_MACHINES)

    printer = EventPrinter()
    still = Still(printer)
    questions = _Questions(still, yes=yes)
    with still.working():
        down = take_down(
            choice,
            printer,
            questions.approve,
            delete_data=delete_data,
            # Only with the flag: without it, even a question would be too easy to answer in passing.
            take_over=questions.go_on if take_over else None,
            keep=questions.keep,
            at_down=adopted or "",
        )
    view.show(down, unbilled=choice.cloud == "local", as_json=choice.as_json)
    # After the document: with --json, stdout lists what is left, and the exit code is the error's.
    down.raise_leftovers()


class _Questions:
    """What is asked before something goes; *yes* is the answer to all of it."""

    def __init__(self, still: "Still", *, yes: bool) -> None:
        self._still, self._yes = still, yes

    def approve(self, name: str, data_goes: bool) -> None:
        """Ask before a deletion. Raise Exit on a no."""
        with self._still.asking():
            confirm_deletion(yes=self._yes)(name, data_goes)

    def go_on(self, held: LeaseHeldError) -> None:
        """Ask whether to delete while another process holds the lease. Raise Exit on a no."""
        with self._still.asking():
            say(f"{held.message}; if it still works, it may make machines again")
            confirm("Go on without the lease?", yes=self._yes)

    def keep(self, machines: Sequence[Node | Vm]) -> bool:
        """Ask whether adopted *machines* are given back; *yes* does, since a deletion is for good."""
        if self._yes:
            return True
        names = ", ".join(node.name for node in machines)
        with self._still.asking():
            return not approved(f"tpuctl has not made {names}. Delete it too?")
