"""Who we are: the project, and the account that its machines run as."""

from orchestrator.domain.ports import CloudAccount
from orchestrator.errors import MissingPermissionError
from orchestrator.google.client_errors import translated
from orchestrator.google.clients import Clients


def read_account(clients: Clients, service_account: str | None = None) -> CloudAccount:
    """
    Return project and machine account; raise AuthError with the missing role.

    With *service_account* there is no lookup.
    """
    email = service_account or _default_service_account(clients)
    return CloudAccount(clients.project, email)


def _default_service_account(clients: Clients) -> str:
    try:
        with translated(f"read project '{clients.project}'"):
            answer = clients.projects.get(project=clients.project, **clients.reading)
            return str(answer.default_service_account)
    except MissingPermissionError as error:
        hint = f"Set service_account in tpuctl.yaml; then no lookup is needed. Or: {error.hint}"
        raise MissingPermissionError(error.message, hint=hint, changed=error.changed) from error
