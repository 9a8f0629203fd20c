"""Identify callers of the storage API: the user, or a machine's account with limited rights."""

from collections.abc import Callable

from orchestrator.emulator.http.metadata_tree import TOKEN_START, token_of
from orchestrator.emulator.http.router import Request
from orchestrator.emulator.state.api_errors import cases
from orchestrator.emulator.state.local_cloud import LocalCloud
from orchestrator.emulator.state.storage.bucket_policy import check_access
from orchestrator.emulator.state.storage.refusals import StorageError
from orchestrator.emulator.state.storage.service import Storage
from orchestrator.emulator.state.values.machine import Machine

CLOUD_PLATFORM = "https://www.googleapis.com/auth/cloud-platform"
SECRETS = "/v1/"
Accounts = Callable[[Request, bool], tuple[str, ...]]
"""Returns the accounts that a request may come from, given whether it writes; () for the user."""
MachineOf = Callable[[tuple[str, int]], str | None]
"""Returns the id of the machine at the other end of a connection; None for the user's, "" if unknown."""


def nobody(_request: Request, _writes: bool) -> tuple[str, ...]:
    """Treat every caller as the user, for a storage without machines."""
    return ()


class Callers:
    """
    Identifies accounts by the token from the metadata server, or by the calling machine.

    *on_machine* means that only machines use this listener. Reads without a token are allowed, since machines
    may read all of their bucket.
    """

    def __init__(self, cloud: LocalCloud, machine_of: MachineOf, *, on_machine: bool = False) -> None:
        self._cloud = cloud
        self._machine_of = machine_of
        self._on_machine = on_machine

    def __call__(self, request: Request, writes: bool) -> tuple[str, ...]:
        """Return the accounts of a request. Raise 401 for the token of a deleted machine."""
        return tuple(sorted({one.service_account for one in self._machines(request, identify=writes)}))

    def check_scope(self, request: Request) -> None:
        """Raise 403 for a machine without the scope for APIs that change something or read secrets."""
        identify = request.method != "GET" or request.path.startswith(SECRETS)
        if any(CLOUD_PLATFORM not in one.scopes for one in self._machines(request, identify=identify)):
            raise cases()["secretmanager v1", "scope insufficient"].error()

    def _machines(self, request: Request, *, identify: bool) -> list[Machine]:
        """
        Return the machines that a request may come from, () for the user.

        With *identify*, a caller without a token is identified by its connection, which takes some milliseconds.
        """
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        if token.startswith(TOKEN_START):
            found = [one for one in self._cloud.machines() if token_of(one) == token]
            if not found:
                raise _gone()
            return found
        if not identify or (request.peer is None and not self._on_machine):
            return []
        machine = "" if request.peer is None else self._machine_of(request.peer)
        if machine is None:
            return []
        # The caller has closed its connection, so its machine is unknown; then all of them must be allowed.
        among = [one for one in self._cloud.machines() if machine in ("", one.id)]
        if machine and not among:
            raise _gone()
        return among


def _gone() -> StorageError:
    return StorageError(401, "authError", "Invalid Credentials")


class StorageAccess:
    """Checks access to buckets and objects."""

    def __init__(self, storage: Storage, accounts: Accounts = nobody) -> None:
        self._storage = storage
        self._accounts = accounts

    def admit(self, request: Request, bucket: str, permission: str, name: str = "") -> None:
        """Raise 404 for a missing bucket, 403 if the caller lacks *permission*."""
        held = self._storage.buckets.get(bucket, permission)
        in_force = self._storage.buckets.in_force(held)
        if not (held.policy.get("bindings") or in_force.get("bindings")):
            return
        writes = permission not in ("storage.objects.get", "storage.objects.list")
        for email in self._accounts(request, writes):
            check_access(held, in_force, email, permission, name)

    def admit_write(self, request: Request, bucket: str, name: str) -> None:
        """Check a write; overwriting an object also needs the permission to delete (docs/facts.md 3.2)."""
        self.admit(request, bucket, "storage.objects.create", name)
        if self._storage.objects.holds(bucket, name):
            self.admit(request, bucket, "storage.objects.delete", name)
