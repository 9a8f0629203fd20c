"""tpuctl doctor: what is missing or wrong, here and in the project."""

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.options import deployment_options

if TYPE_CHECKING:
    from orchestrator.advice.doctor.facts import Facts


@click.command("doctor")
@deployment_options
@click.option("--fix", is_flag=True, help="Mend what is safe to mend on this computer.")
def command(choice: Choice, fix: bool) -> None:
    """
    Look at this computer, the deployment file, the local cloud and the project, and say what to mend.

    Works offline and without credentials; what nobody could tell is `unknown`. Leaves with 1 when
    something is wrong.
    """
    from orchestrator.advice.doctor.rules import examine, healthy
    from orchestrator.app.doctor.computer_facts import look_at_computer
    from orchestrator.app.doctor.fixes import mend
    from orchestrator.app.doctor.local_facts import look_at_local
    from orchestrator.cli.views import doctor
    from orchestrator.cli.views.event_lines import EventPrinter

    with EventPrinter():
        facts = gather(choice)
    done = mend(facts) if fix else []
    if done:
        facts = replace(facts, computer=look_at_computer(choice.cloud), local=look_at_local(choice.cloud))
    findings = examine(facts)
    doctor.show(findings, done, as_json=choice.as_json)
    if not healthy(findings):
        raise click.exceptions.Exit(1)


def gather(choice: "Choice") -> "Facts":
    """Return what this computer and the chosen cloud show; nothing is changed or started."""
    from orchestrator.advice.doctor.facts import Facts
    from orchestrator.app.doctor.computer_facts import look_at_computer
    from orchestrator.app.doctor.file_facts import look_at_file
    from orchestrator.app.doctor.google_facts import look_at_google
    from orchestrator.app.doctor.local_facts import look_at_local

    file = look_at_file(choice)
    google = look_at_google(choice, file.spec)
    return Facts(look_at_computer(choice.cloud), file, look_at_local(choice.cloud), google)
