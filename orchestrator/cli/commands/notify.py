"""tpuctl notify: test notifications."""

import click

from orchestrator.app.choice import Choice
from orchestrator.cli.console import print_json, put
from orchestrator.cli.options import Command, deployment_options


@click.group("notify", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Send notifications to webhooks, other services and local programs (`notify` in the deployment file)."""


@command.command("test", cls=Command)
@deployment_options
def test(choice: Choice) -> None:
    """Send a test event to every target, and say which ones received it. Exits with 1 when one did not."""
    from orchestrator.app.notify import try_receivers
    from orchestrator.app.session import read_spec

    path, spec = read_spec(choice)
    errors = try_receivers(spec, path.parent, choice.cloud)
    if choice.as_json:
        results = [
            {"receiver": name, "told": e is None, "why": e.message if e else ""} for name, e in errors.items()
        ]
        print_json("notify", {"results": results})
    for name, error in errors.items() if not choice.as_json else ():
        # Receivers by number, since an address may be a secret; errors do not repeat it either.
        put(f"{name}: {'delivered' if error is None else f'not delivered: {error.message}'}")
        if error is not None and error.hint:
            put(f"  next:  {error.hint}")
    if any(errors.values()):
        raise click.exceptions.Exit(1)
