"""tpuctl down: delete everything that tpuctl made."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, acts_on_name, deployment_options, yes_option
from orchestrator.cli.questions import DownQuestions


@click.command("down", cls=Command)
@deployment_options
@yes_option
@click.option(
    "--take-over", is_flag=True, help="Delete although another tpuctl holds the lease; it is named first."
)
@click.option("--delete-data", is_flag=True, help="Delete the bucket too: checkpoints, logs, everything.")
@click.option(
    "--at-down",
    type=click.Choice(["keep", "delete"]),
    help="What becomes of an adopted TPU or VM. Default: as chosen at `adopt`, else ask; keep without a terminal.",
)
@acts_on_name
def command(
    choice: Choice, yes: bool, delete_data: bool, take_over: bool, at_down: str | None, name: str | None
) -> None:
    """
    Delete TPU and VM, then list by label what is left. The bucket's data stays without --delete-data.

    It can be run again at any time, and finds its resources by label even without a record. NAME is a
    deployment that this computer has brought up; without it, the one of the deployment file.
    """
    from orchestrator.app.down import take_down
    from orchestrator.cli.views import down as view
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.cli.views.still_waiting import StillWaiting

    printer = EventPrinter()
    still = StillWaiting(printer)
    questions = DownQuestions(still.asking, yes=yes)
    with still.working():
        down = take_down(
            choice, printer, questions.approve, name=name, delete_data=delete_data,
            # Only with the flag: without it, even a question would be too easy to answer in passing.
            take_over=questions.go_on if take_over else None, keep=questions.keep, at_down=at_down or "",
        )  # fmt: skip
    view.show(down, unbilled=choice.cloud == "local", as_json=choice.as_json)
    # After the document: with --json, stdout lists what is left, and the exit code is the error's.
    down.raise_leftovers()
