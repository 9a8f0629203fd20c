"""
Define the Protocols of the adapters: what the engine needs of a cloud, of machines and of storage.

Adapters raise only errors of `orchestrator.errors`, return states and never wait.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.domain.all_zones import ObservedAllZones
from orchestrator.domain.machines.data_disks import DataDisk
from orchestrator.domain.machines.queued_resource import QueuedResource
from orchestrator.domain.observation import (
    Bucket,
    ForeignBucket,
    ForeignNode,
    ForeignVm,
    Node,
    Observed,
    Operation,
    OperationResult,
    Vm,
)
from orchestrator.domain.remote import Remote


@dataclass(frozen=True)
class NewBucket:
    """
    The bucket to create: private, deleted objects kept for *soft_delete* seconds.

    TPUs run as the account *writer*, the VM as *vm* (empty: the same); with *loop* the VM runs the loop.
    """

    name: str
    location: str
    labels: Mapping[str, str]
    writer: str
    vm: str = ""
    loop: bool = False
    soft_delete: int = 0


@dataclass(frozen=True)
class NetworkInterface:
    """A machine's network: names or paths of network and subnetwork (may be empty), and network tags."""

    network: str = "default"
    subnetwork: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class NewVm:
    """The VM to create. *ttl* in seconds becomes maxRunDuration: DELETE, or STOP for spot."""

    name: str
    zone: str
    machine_type: str
    disk_gb: int
    spot: bool
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    service_account: str
    scopes: tuple[str, ...]
    ttl: float
    # Without an address the network needs Private Google Access and Cloud NAT (docs/security.md, SEC4).
    external_ip: bool = True
    interface: NetworkInterface = field(default_factory=NetworkInterface)
    secure_boot: bool = False
    image: str = ""


@dataclass(frozen=True)
class NewNode:
    """
    The TPU node to create; *reservation* is the name or path of the one to use, or empty.

    *run_seconds* makes it a flex-start TPU that Google ends after that time; 0 for all others.
    """

    name: str
    zone: str
    type: str
    runtime: str
    spot: bool
    # No default, because they differ: false in the API, true in gcloud (docs/facts.md 1.3).
    external_ip: bool
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    service_account: str
    # Never empty: the API takes an empty list for all APIs (docs/facts.md 1.3).
    scopes: tuple[str, ...]
    interface: NetworkInterface = field(default_factory=NetworkInterface)
    secure_boot: bool = False
    reservation: str = ""
    run_seconds: float = 0.0
    disks: tuple[DataDisk, ...] = ()


class Buckets(Protocol):
    """Observe, create and delete buckets."""

    def observe(self, name: str) -> Observed[Bucket]:
        """Observe one bucket; errors become Unknown."""

    def create(self, new: NewBucket) -> None:
        """Create the bucket and its grants; raise ConflictError if another owner has the name."""

    def delete(self, name: str) -> None:
        """Delete the bucket with all objects; do nothing if it does not exist."""

    def empty(self, name: str, prefix: str, keep: Container[str] = ()) -> None:
        """Delete all objects under *prefix* except the names in *keep*; do nothing if the bucket does not exist."""

    def inspect(self, name: str) -> Observed[ForeignBucket]:
        """Observe one bucket of any owner, with what an adoption needs to know; errors become Unknown."""

    def add_labels(self, name: str, labels: Mapping[str, str], version: int) -> None:
        """Add *labels* to a bucket; raise ConflictError if its settings are no longer those of *version*."""

    def remove_labels(self, made: NewBucket, labels: Sequence[str]) -> None:
        """Remove *labels* and the grants of `create` from a bucket; do nothing if it does not exist."""


class Vms(Protocol):
    """Observe, create, start and delete VMs."""

    def list_all_zones(self, label: str, value: str) -> ObservedAllZones[Vm]:
        """List the VMs with the label in all zones by one call; places without an answer are named."""

    def observe(self, name: str, zone: str) -> Observed[Vm]:
        """Observe one VM; errors become Unknown."""

    def disk_users(self, name: str, zone: str) -> Observed[tuple[str, ...]]:
        """Observe a disk of any owner: Present with the machines that use it, Absent if it does not exist."""

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Observed[tuple[Vm, ...]]:
        """List the VMs with the label in *zones*, all pages; a partial answer is Unknown."""

    def create(self, new: NewVm) -> Operation:
        """Request the VM; raise ConflictError if the name is taken."""

    def start(self, name: str, zone: str) -> Operation:
        """Request the start of a stopped VM."""

    def stop(self, name: str, zone: str) -> Operation | None:
        """Request the stop of a running VM, which keeps its disk; None if it does not exist."""

    def delete(self, name: str, zone: str) -> Operation | None:
        """Request the deletion; None if it does not exist."""

    def poll(self, operation: Operation) -> OperationResult:
        """Poll an operation once; a DONE operation that carries an error is a failure."""

    def host_keys(self, name: str, zone: str) -> tuple[str, ...]:
        """Return the public host keys (`ssh-ed25519 AAAA...`); raise NotFoundError while there are none."""

    def inspect(self, name: str, zone: str) -> Observed[ForeignVm]:
        """Observe one VM of any owner, with what an adoption needs to know; errors become Unknown."""

    def add_labels(self, name: str, zone: str, labels: Mapping[str, str], version: str = "") -> Operation:
        """Request additional *labels*; raise ConflictError if the VM's labels are no longer those of *version*."""

    def remove_labels(self, name: str, zone: str, labels: Sequence[str]) -> Operation | None:
        """Request the removal of *labels*; None if the VM does not exist."""

    def admit(self, name: str, zone: str, ssh_key: str) -> Operation:
        """Request an additional SSH key in the VM's metadata."""

    def expel(self, name: str, zone: str, ssh_key: str) -> Operation | None:
        """Request the removal of this SSH key from the VM's metadata; None if the VM does not exist."""


class Nodes(Protocol):
    """Observe, create and delete TPU nodes."""

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Observed[tuple[Node, ...]]:
        """List the nodes with the label in *zones*, all pages; a partial answer is Unknown."""

    def list_all_zones(self, label: str, value: str) -> ObservedAllZones[Node]:
        """List the nodes with the label in all zones by one call; places without an answer are named."""

    def observe(self, name: str, zone: str) -> Observed[Node]:
        """Observe one node of any owner; errors become Unknown."""

    def create(self, new: NewNode) -> Operation:
        """Request the node; raise ConflictError if the name is taken."""

    def delete(self, name: str, zone: str) -> Operation | None:
        """Request the deletion; None if it does not exist."""

    def poll(self, operation: Operation) -> OperationResult:
        """Poll an operation once."""

    def host_keys(self, name: str, zone: str, worker: int) -> tuple[str, ...]:
        """Return one worker's public host keys from its guest attributes; NotFoundError while there are none."""

    def inspect(self, name: str, zone: str) -> Observed[ForeignNode]:
        """Observe one node of any owner, with its unchangeable settings; errors become Unknown."""

    def add_labels(self, name: str, zone: str, labels: Mapping[str, str], ssh_key: str) -> Operation:
        """Request additional *labels* and an SSH key on a node."""

    def remove_labels(self, name: str, zone: str, labels: Sequence[str], ssh_key: str) -> Operation | None:
        """Request the removal of *labels* and this SSH key from a node; None if it does not exist."""


@dataclass(frozen=True)
class StoredObject:
    """One object of the bucket; *updated* is the bucket's time in seconds since the epoch."""

    name: str
    size: int
    generation: int
    updated: float
    data: bytes = b""


class QueuedResources(Protocol):
    """Observe, create and delete queued resources of one node each; both have the same name."""

    def observe(self, name: str, zone: str) -> Observed[QueuedResource]:
        """Observe one queued resource; errors become Unknown. A new one may be Absent for a moment."""

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Observed[tuple[QueuedResource, ...]]:
        """List those whose node has the label in *zones*, all pages; a partial answer is Unknown."""

    def list_all_zones(self, label: str, value: str) -> ObservedAllZones[QueuedResource]:
        """List those whose node has the label in all zones; places without an answer are named."""

    def create(self, new: NewNode, wait: float | None) -> Operation:
        """Put the request into the queue, for at most *wait* seconds; raise ConflictError if the name is taken."""

    def delete(self, name: str, zone: str, *, force: bool) -> Operation | None:
        """Request the deletion; None if it does not exist. Only *force* deletes its nodes as well."""

    def poll(self, operation: Operation) -> OperationResult:
        """Poll an operation once; that of a create ends when the request is in the queue."""


MAX_BYTES = 4 << 20
"""Most bytes of an object to read by default; machines write to the bucket too."""
MAX_OBJECTS = 1_000_000
"""Most names that one list returns by default; machines may write any number of objects."""


class Store(Protocol):
    """Read and write objects of the deployment's bucket."""

    def below(self, prefix: str) -> "Store":
        """Return the store for all names below *prefix*; no call is made."""

    def read(self, name: str, offset: int = 0, limit: int = MAX_BYTES) -> StoredObject | None:
        """
        Return an object with its data from *offset* on, at most *limit* bytes; None if it does not exist.

        Bytes are returned as stored, never decompressed.
        """

    def sha256(self, name: str) -> str | None:
        """Read an object of any size and return the sha256 of its bytes in hex, None if it does not exist."""

    def download(
        self, name: str, path: Path, sized: Callable[[int], object] | None = None, streams: int = 1
    ) -> str | None:
        """
        Download an object of any size; return the sha256 of its bytes in hex, None if it does not exist.

        *sized* is called with the size before the first byte and may raise to stop. A large object is
        downloaded in *streams* parallel parts.
        """

    def write(self, name: str, data: bytes, if_generation: int | None = None) -> int:
        """
        Write an object and return its generation; *if_generation* 0 means "must not exist".

        Raise PreconditionError if the object has another generation.
        """

    def upload(self, name: str, path: Path) -> int:
        """Upload a file unless an object of that name exists; return the object's generation."""

    def list(self, prefix: str, most: int = MAX_OBJECTS) -> list[StoredObject]:
        """List all objects under *prefix*, without data. Raise UnknownCloudError if there are more than *most*."""

    def checksums(self, prefix: str) -> dict[str, tuple[int, str]]:
        """Return size and crc32c (base64, as the bucket shows it) of all objects under *prefix* by name."""

    def delete(self, name: str, if_generation: int | None = None, *, patient: bool = True) -> None:
        """
        Delete an object; do nothing if it does not exist. Raise PreconditionError as `write` does.

        Without *patient*, a refusal because of the object's rate limit is raised at once, not retried.
        """


@dataclass(frozen=True)
class CloudAccount:
    """The project, and the account that machines run as by default."""

    project: str
    default_service_account: str


@dataclass(frozen=True)
class Cloud:
    """
    Bundle the adapters of one cloud for one deployment.

    *capacity_store* has the capacity history for all nodes of a fleet; it is the *store* without a fleet. *inside*
    says that we run in the machines' network; *relay* is the address of a local cloud's Identity-Aware Proxy,
    empty for Google's own.
    """

    account: CloudAccount
    buckets: Buckets
    vms: Vms
    nodes: Nodes
    queued: QueuedResources
    store: Store
    remote: Remote
    capacity_store: Store
    ssh_port: int = 22
    inside: bool = False
    relay: str = ""
