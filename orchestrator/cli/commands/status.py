"""tpuctl status: what exists and how far the job is."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options, exclusive, follow_option, name_argument


@click.command("status", cls=Command)
@deployment_options
@follow_option("Go on, until Ctrl-C or the end of the deployment.")
@click.option("-a", "--all", "everything", is_flag=True, help="All deployments of this computer, as a table.")
@click.option("--wide", is_flag=True, help="As wide as the terminal, and a line for each worker.")
@click.option("--fresh", is_flag=True, help="Ask the cloud, also where the watcher has just checked.")
@click.option("--once", is_flag=True, hidden=True, help="Without --follow: `top` had this switch.")
@name_argument
@exclusive(
    "--all", ("NAME", "--file", "--set", "--wide", "--fresh"),
    hint="--all shows what is up; run: tpuctl status --all",
)  # fmt: skip
def command(
    choice: Choice, follow: bool, everything: bool, wide: bool, fresh: bool, once: bool, name: str | None
) -> None:
    """
    Show bucket, VM, TPU and job. Changes nothing.

    While a watcher runs, its last observation is shown with its age; otherwise, and with
    --fresh, the cloud is asked. NAME is a deployment that this computer has brought up; without it, the one
    of the deployment file, and without a file all that are known here.

    `status --all -f` on a terminal has keys: arrows select, Enter shows the details, s sorts by the next column,
    r reverses the order, q ends it.
    """
    from orchestrator.app.status.what_to_show import AllDeployments, StatusFlags, StatusHere, what_to_show
    from orchestrator.cli.views import status as view

    shown = what_to_show(choice, name, StatusFlags(follow, everything, wide, fresh))
    if isinstance(shown, StatusHere):
        view.show(shown.status, unbilled=choice.cloud == "local", wide=wide, as_json=choice.as_json)
        return
    # Imported late, since these modules are slow to import and a published status needs none of them.
    from orchestrator.app.status.status import newest, open_for_status
    from orchestrator.cli.views.event_lines import EventPrinter

    if isinstance(shown, AllDeployments):
        # Imported late, since both views need rich, which a single status does without.
        from orchestrator.cli.views.all_deployments import show_all

        show_all(choice, follow=follow and not once)
        return
    printer = EventPrinter()
    session = open_for_status(choice, name, printer)
    if shown.follow:
        from orchestrator.cli.views.redraw import follow_status

        follow_status(choice, session.clock, lambda: newest(session, fresh=fresh), wide=wide)
        return
    with printer:
        body = newest(session, fresh=fresh)
    view.show(body, unbilled=choice.cloud == "local", wide=wide, as_json=choice.as_json)
