"""tpuctl notify: test notifications."""

import click

from orchestrator.app.context.choice import Choice
from orchestrator.cli.options import Command, deployment_options


@click.group("notify", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Send notifications to webhooks, other services and local programs (`notify` in the deployment file)."""


@command.command("test", cls=Command)
@deployment_options
def test(choice: Choice) -> None:
    """Send a test to every receiver, and say which ones received it. Exits with 1 when one did not."""
    from orchestrator.app.deployment.session import read_spec
    from orchestrator.app.notify import try_receivers
    from orchestrator.cli.views import notify as view

    path, spec = read_spec(choice)
    errors = try_receivers(spec, path.parent, choice.cloud)
    view.show(errors, as_json=choice.as_json)
    if any(errors.values()):
        raise click.exceptions.Exit(1)
