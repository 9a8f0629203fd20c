"""Show what was stored in Secret Manager, and the names of what is there."""

from dataclasses import asdict

import click

from orchestrator.app.secret import Names, NewVersion
from orchestrator.cli.console import print_json, say, talk


def show_stored(name: str, done: NewVersion, *, as_json: bool) -> None:
    """Print the new version of a secret, and how to use it."""
    if as_json:
        print_json("secret", asdict(done))
        return
    say(f"secret {name} of project {done.project} has version {done.version}; use it as secret://{name}")
    talk("  next:  the machines' account needs a role to read it: `tpuctl plan` shows the line")


def show_names(found: Names, *, as_json: bool) -> None:
    """Print the names of a project's secrets."""
    if as_json:
        print_json("secrets", asdict(found))
        return
    for one in found.secrets:
        click.echo(f"{one.name}  {one.created[:19]}")
    if not found.secrets:
        say(f"project {found.project} has no secrets; store one with: tpuctl secret set NAME")
