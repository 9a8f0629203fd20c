"""Store secrets in Secret Manager of the chosen cloud, and nowhere else; only machines read them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from orchestrator.app.context.clouds import clients_of
from orchestrator.app.context.reporter import Reporter
from orchestrator.config.load import find, load
from orchestrator.domain.source.secret_refs import SCHEME, job_secrets, reference
from orchestrator.domain.spec import Spec
from orchestrator.errors import UsageError
from orchestrator.google.secret_manager import SecretManager, Stored

MADE_UP = b"made-up-for-this-rehearsal"
MAX_LENT = 100
"""Versions that a rehearsal creates of one secret at most."""


@dataclass(frozen=True)
class NewVersion:
    """The secret version that was stored."""

    name: str
    version: int
    project: str


@dataclass(frozen=True)
class Names:
    """The names of a project's secrets, without values."""

    project: str
    secrets: tuple[Stored, ...]


def store_secret(name: str, value: Callable[[], bytes], project: str | None, cloud: str) -> NewVersion:
    """
    Store a new version of *name*; *value* is called, and may ask the user, after the name is checked.

    Raise UsageError.
    """
    if reference(SCHEME + name) is None or "/" in name:
        raise UsageError(
            f"{name[:60]!r} cannot be the name of a secret", hint="use letters, digits, '_' and '-'",
            changed="nothing was stored",
        )  # fmt: skip
    # After the check of the name, so that a secret is not typed in vain.
    text = value()
    manager, where = open_manager(project, cloud)
    return NewVersion(name, manager.set(name, text), where)


def list_secrets(project: str | None, cloud: str) -> Names:
    """Return the names of the project's secrets."""
    manager, where = open_manager(project, cloud)
    return Names(where, tuple(manager.list()))


def open_manager(project: str | None, cloud: str) -> tuple[SecretManager, str]:
    """Return Secret Manager of the chosen cloud, and the project: the option's, the file's or the login's."""
    if project is None and cloud != "local":
        try:
            project = load(find(Path.cwd())).project
        except UsageError:
            project = None
    clients = clients_of(cloud, project)
    return SecretManager(clients), clients.project


def lend_secrets(spec: Spec, reporter: Reporter) -> None:
    """Store made-up values for the secrets of a rehearsal's job, whose local cloud must not have real ones."""
    wanted = job_secrets(spec).values()
    if not wanted:
        return
    manager, _ = open_manager(None, "local")
    for name in dict.fromkeys(ref.name for ref in wanted):
        versions = [int(ref.version) for ref in wanted if ref.name == name and ref.version != "latest"]
        # Bounded, because each version is a call and a file may refer to version 9999999999.
        for _number in range(min(MAX_LENT, max(versions, default=1))):
            manager.set(name, MADE_UP)
    reporter.say(f"the job's secrets have made-up values in this rehearsal: {', '.join(job_secrets(spec))}")
