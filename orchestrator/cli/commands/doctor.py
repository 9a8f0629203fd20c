"""tpuctl doctor: what is missing or wrong, here and in the project."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options


@click.command("doctor", cls=Command)
@deployment_options
@click.option("--fix", is_flag=True, help="Fix what is safe to fix on this computer.")
def command(choice: Choice, fix: bool) -> None:
    """
    Look at this computer, the deployment file, the local cloud and the project, and say what to fix.

    Works offline and without credentials; what cannot be found out is `unknown`. Exits with 1 when
    something is wrong.
    """
    from orchestrator.app.doctor.diagnose import diagnose
    from orchestrator.cli.views import doctor
    from orchestrator.cli.views.event_lines import EventPrinter

    with EventPrinter():
        found = diagnose(choice, fix=fix)
    doctor.show(found.findings, found.fixed, as_json=choice.as_json, unbilled=choice.cloud == "local")
    if found.stops:
        raise click.exceptions.Exit(1)
