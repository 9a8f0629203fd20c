"""How what needs no deployment reaches the chosen cloud."""

from typing import TYPE_CHECKING, Any

from orchestrator.app.local import ensure_running
from orchestrator.emulator.address import address_on_machine
from orchestrator.google.clients import Clients, CloudSettings

if TYPE_CHECKING:
    from orchestrator.emulator.address import Address


def clients_of(cloud: str, project: str | None) -> Clients:
    """Return Google's clients for *cloud*; without *project* it is that of the login. Starts a local cloud."""
    if cloud == "local":
        return Clients(local_settings(address_on_machine() or ensure_running()[0]))
    return Clients(CloudSettings(project=project or ""))


def local_settings(address: "Address", **more: Any) -> CloudSettings:
    """Return how clients reach the local cloud at *address*."""
    from orchestrator.emulator.own_server import adapter_for  # It imports requests, which takes its time.

    return CloudSettings(address.project, address.endpoint, adapter=adapter_for(address), **more)
