"""tpuctl push: new code for a running job, without touching its machines."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options


@click.command("push", cls=Command)
@deployment_options
@click.option("--dry-run", is_flag=True, help="Only show what would be pushed.")
def command(choice: Choice, dry_run: bool) -> None:
    """
    Bring changed code and job settings to the running job, which starts again from its newest checkpoint.

    No machine is made or deleted. While the TPU is being replaced, the new code is kept in the bucket and the
    next machine takes it. A running `tpuctl watch` yields, then continues with the new code.
    """
    from orchestrator.app.push import push
    from orchestrator.cli.views import push as view
    from orchestrator.cli.views.event_lines import EventPrinter
    from orchestrator.cli.views.still_waiting import StillWaiting

    printer = EventPrinter()
    with StillWaiting(printer).working():
        pushed = push(choice, printer, dry_run=dry_run)
    view.show(pushed, as_json=choice.as_json)
