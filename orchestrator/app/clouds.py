"""How what needs no deployment reaches the chosen cloud."""

from typing import Any

from orchestrator.emulator.address import Address, address_on_machine
from orchestrator.google.clients import Clients, CloudSettings


def clients_of(cloud: str, project: str | None) -> Clients:
    """Return Google's clients for *cloud*; without *project* it is that of the login. Starts a local cloud."""
    if cloud == "local":
        from orchestrator.app.local import ensure_running

        return Clients(local_settings(address_on_machine() or ensure_running()[0]))
    # No impersonation here: without a deployment file nobody has named an account to act as.
    return Clients(CloudSettings(project=project or ""))


def local_settings(address: Address, **more: Any) -> CloudSettings:
    """Return how clients reach the local cloud at *address*."""
    return CloudSettings(address.project, address.endpoint, adapter=local_adapter(address), **more)


def local_adapter(address: Address) -> object:
    """Return what lets Google's clients trust the local cloud at *address*."""
    # requests takes 100 ms to import, and only a command that asks the local cloud needs it.
    from orchestrator.emulator.own_server import adapter_for

    return adapter_for(address)
