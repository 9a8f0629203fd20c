"""Connect to the chosen cloud for commands that need no deployment."""

from typing import Any

from orchestrator.emulator.address import Address, address_on_machine
from orchestrator.google.clients import Clients, CloudSettings


def clients_of(cloud: str, project: str | None) -> Clients:
    """Return Google's clients for *cloud*; *project* None means the login's. Starts a local cloud if needed."""
    if cloud == "local":
        from orchestrator.app.local import ensure_running

        return Clients(local_settings(address_on_machine() or ensure_running()[0]))
    # No impersonation: only a deployment file can name an account for it.
    return Clients(CloudSettings(project=project or ""))


def local_settings(address: Address, **more: Any) -> CloudSettings:
    """Return the settings of clients of the local cloud at *address*."""
    return CloudSettings(address.project, address.endpoint, adapter=local_adapter(address), **more)


def local_adapter(address: Address) -> object:
    """Return an HTTP adapter with which Google's clients trust the local cloud at *address*."""
    # requests takes 100 ms to import, and only calls to the local cloud need it.
    from orchestrator.emulator.own_server import adapter_for

    return adapter_for(address)


def local_cloud_text(address: Address, *, again: bool) -> str:
    """Return that the local cloud at *address* goes on; *again*: a command that only looks has started it."""
    # Who only looks asks for no start, and may have stopped it on purpose.
    runs = "was stopped and is started again: it runs" if again else "runs"
    return f"the local cloud {runs} at {address.endpoint} (to stop it: tpuctl local stop)"
