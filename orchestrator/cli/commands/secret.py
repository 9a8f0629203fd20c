"""tpuctl secret: put values where the machines read them, without writing them anywhere else."""

import sys
from typing import TYPE_CHECKING

import click

from orchestrator.cli.options import cloud_option, json_option
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.domain.spec import Spec
    from orchestrator.google.secret_manager import SecretManager

MADE_UP = b"made-up-for-this-rehearsal"
MOST_LENT = 100
"""Versions of one secret that a rehearsal makes at most."""

project_option = click.option("--project", help="Google Cloud project; as for `tpuctl up` when left out.")


@click.group("secret", context_settings={"help_option_names": ["-h", "--help"]})
def command() -> None:
    """Store secrets in Secret Manager, for `job.secrets` and `notify` in the deployment file."""


@command.command("set", short_help="Store a new version of NAME, from standard input.")
@click.argument("name")
@project_option
@cloud_option
@json_option
def store(name: str, project: str | None, cloud: str, as_json: bool) -> None:
    """
    Store a new version of NAME; the value comes from standard input, or is asked for without showing it.

    One line end at its end is left out.
    """
    from orchestrator.cli.console import print_json, say
    from orchestrator.domain.secret_refs import SCHEME, reference

    if reference(SCHEME + name) is None or "/" in name:
        raise UsageError(
            f"{name[:60]!r} is no name for a secret", hint="use letters, digits, '_' and '-'",
            unchanged="nothing was stored",
        )  # fmt: skip
    value = _value(name)
    manager, where = open_manager(project, cloud)
    version = manager.set(name, value)
    if as_json:
        print_json("secret", {"name": name, "version": version, "project": where})
        return
    say(f"secret {name} of project {where} has version {version}; use it as secret://{name}")
    say("  next:  the machines' account needs a role to read it: tpuctl plan shows the line")


@command.command("list")
@project_option
@cloud_option
@json_option
def show(project: str | None, cloud: str, as_json: bool) -> None:
    """List the names of the project's secrets. Values are never shown."""
    from dataclasses import asdict

    from orchestrator.cli.console import print_json, say

    manager, where = open_manager(project, cloud)
    found = manager.list()
    if as_json:
        print_json("secrets", {"project": where, "secrets": [asdict(one) for one in found]})
        return
    for one in found:
        click.echo(f"{one.name}  {one.created[:19]}")
    if not found:
        say(f"project {where} has no secrets; store one with: tpuctl secret set NAME")


def lend_secrets(spec: "Spec") -> None:
    """Give the job of a rehearsal made-up values: its local cloud is new, and real ones have no place there."""
    from orchestrator.cli.console import say
    from orchestrator.domain.secret_refs import job_secrets

    wanted = job_secrets(spec).values()
    if not wanted:
        return
    manager, _ = open_manager(None, "local")
    for name in dict.fromkeys(ref.name for ref in wanted):
        versions = [int(ref.version) for ref in wanted if ref.name == name and ref.version != "latest"]
        for _number in range(min(MOST_LENT, max(versions, default=1))):
            manager.set(name, MADE_UP)
    say(f"the job's secrets have made-up values in this rehearsal: {', '.join(job_secrets(spec))}")


def _value(name: str) -> bytes:
    """Return the value; it stands on no command line, because those can be seen by everybody on a computer."""
    if sys.stdin.isatty():
        return str(click.prompt(f"value of {name}", hide_input=True, err=True)).encode()
    value: bytes = sys.stdin.buffer.read()
    return value[:-1] if value.endswith(b"\n") else value


def open_manager(project: str | None, cloud: str) -> "tuple[SecretManager, str]":
    """Return Secret Manager of the chosen cloud, and the project: the option's, the file's or the login's."""
    from pathlib import Path

    from orchestrator.config.load import find, load
    from orchestrator.google.clients import Clients, CloudSettings
    from orchestrator.google.secret_manager import SecretManager

    if cloud == "local":
        from orchestrator.app.local import ensure_running
        from orchestrator.emulator.address import address_on_machine
        from orchestrator.emulator.own_server import adapter_for

        address = address_on_machine() or ensure_running()[0]
        clients = Clients(CloudSettings(address.project, address.endpoint, adapter=adapter_for(address)))
        return SecretManager(clients), address.project
    if project is None:
        try:
            project = load(find(Path.cwd())).project
        except UsageError:
            project = None
    clients = Clients(CloudSettings(project=project or ""))
    return SecretManager(clients), clients.project
