"""Who calls the storage API: the user of the local cloud, or the account of a machine, whose rights are limited."""

from collections.abc import Callable

from orchestrator.emulator.http.metadata_tree import TOKEN_START, token_of
from orchestrator.emulator.http.router import Request
from orchestrator.emulator.state.api_errors import cases
from orchestrator.emulator.state.machine import Machine
from orchestrator.emulator.state.storage.bucket_policy import check_access
from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.world import LocalCloud

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
SECRETS = "/v1/"
Accounts = Callable[[Request, bool], tuple[str, ...]]
"""Return the accounts that a request, which writes or not, may come from; none for the user's own."""
MachineOf = Callable[[tuple[str, int]], str | None]
"""Return the id of the machine from which a connection comes; None for the user's, "" for nobody knows."""


def nobody(_request: Request, _writes: bool) -> tuple[str, ...]:
    """Take each caller for the user: a storage without machines."""
    return ()


class Callers:
    """
    Tell accounts by the token that a machine got from its metadata server, or by the machine that calls.

    *on_machine* says that only machines come this way. What has no token and only reads is let in: machines
    may read all of their bucket.
    """

    def __init__(self, cloud: LocalCloud, machine_of: MachineOf, *, on_machine: bool = False) -> None:
        self._cloud = cloud
        self._machine_of = machine_of
        self._on_machine = on_machine

    def __call__(self, request: Request, writes: bool) -> tuple[str, ...]:
        """Return the accounts; raise 401 for the token of a machine that is gone."""
        return tuple(sorted({one.service_account for one in self._machines(request, look=writes)}))

    def check_scope(self, request: Request) -> None:
        """Raise 403 for a machine without the scope for every API that changes something or reads secrets."""
        look = request.method != "GET" or request.path.startswith(SECRETS)
        if any(CLOUD_PLATFORM not in one.scopes for one in self._machines(request, look=look)):
            raise cases()["secretmanager v1", "scope insufficient"].error()

    def _machines(self, request: Request, *, look: bool) -> list[Machine]:
        """
        Return the machines that a request may come from, none for the user's own.

        Whoever shows no token is looked for by his connection, which takes some milliseconds, only to *look*.
        """
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token.startswith(TOKEN_START):
            found = [one for one in self._cloud.machines() if token_of(one) == token]
            if not found:
                raise _gone()
            return found
        if not look or (request.peer is None and not self._on_machine):
            return []
        machine = "" if request.peer is None else self._machine_of(request.peer)
        if machine is None:
            return []
        # Of a caller that has hung up nobody knows which machine it was: all of them must be allowed.
        among = [one for one in self._cloud.machines() if machine in ("", one.id)]
        if machine and not among:
            raise _gone()
        return among


def _gone() -> StorageError:
    return StorageError(401, "authError", "Invalid Credentials")


class Door:
    """Let a request through to a bucket or object, or refuse it."""

    def __init__(self, storage: Storage, accounts: Accounts = nobody) -> None:
        self._storage = storage
        self._accounts = accounts

    def admit(self, request: Request, bucket: str, permission: str, name: str = "") -> None:
        """Raise 404 when there is no such bucket, 403 when the caller lacks *permission*."""
        held = self._storage.buckets.get(bucket, permission)
        in_force = self._storage.buckets.in_force(held)
        if not (held.policy.get("bindings") or in_force.get("bindings")):
            return
        writes = permission not in ("storage.objects.get", "storage.objects.list")
        for email in self._accounts(request, writes):
            check_access(held, in_force, email, permission, name)

    def admit_write(self, request: Request, bucket: str, name: str) -> None:
        """Let an object be written: over one that is there, deleting has to be allowed too (docs/facts.md 3.2)."""
        self.admit(request, bucket, "storage.objects.create", name)
        if self._storage.objects.holds(bucket, name):
            self.admit(request, bucket, "storage.objects.delete", name)
