"""
The seams, as Protocols: what the engine needs of a cloud, of machines and of storage.

Adapters raise only errors of `orchestrator.errors`, return states and never wait.
"""

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from orchestrator.domain.all_zones import Survey
from orchestrator.domain.data_disks import DataDisk
from orchestrator.domain.observation import (
    Bucket,
    ForeignBucket,
    ForeignNode,
    ForeignVm,
    Node,
    Operation,
    OperationResult,
    Sight,
    Vm,
)
from orchestrator.domain.queued_resource import QueuedResource


@dataclass(frozen=True)
class BucketOrder:
    """
    Describe the bucket to create: private, deleted objects kept for *soft_delete* seconds.

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
    """Describe the network of a machine: names or paths of network and subnetwork (may be empty), network tags."""

    network: str = "default"
    subnetwork: str = ""
    tags: tuple[str, ...] = ()


@dataclass(frozen=True)
class VmOrder:
    """Describe the VM to create. *ttl* in seconds becomes maxRunDuration: DELETE, or STOP for spot."""

    name: str
    zone: str
    machine: str
    disk_gb: int
    spot: bool
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    service_account: str
    scopes: tuple[str, ...]
    ttl: float
    external_ip: bool = True
    interface: NetworkInterface = field(default_factory=NetworkInterface)
    secure_boot: bool = False
    image: str = ""


@dataclass(frozen=True)
class NodeOrder:
    """
    Describe the TPU node to create. *reservation* is the name or path of the one to take it from, or empty.

    With *run_seconds* it is a flex-start TPU that the service ends after that time; 0 for all others.
    """

    name: str
    zone: str
    type: str
    runtime: str
    spot: bool
    external_ip: bool
    labels: Mapping[str, str]
    metadata: Mapping[str, str]
    service_account: str
    scopes: tuple[str, ...]
    interface: NetworkInterface = field(default_factory=NetworkInterface)
    secure_boot: bool = False
    reservation: str = ""
    run_seconds: float = 0.0
    disks: tuple[DataDisk, ...] = ()


class Buckets(Protocol):
    """Observe, create and delete buckets."""

    def observe(self, name: str) -> Sight[Bucket]:
        """Look at one bucket; errors become Unknown."""

    def create(self, order: BucketOrder) -> None:
        """Create the bucket and grant the writer; raise ConflictError when the name is somebody else's."""

    def delete(self, name: str) -> None:
        """Delete the bucket with all objects in it; a bucket that is gone is fine."""

    def empty(self, name: str, prefix: str, keep: Container[str] = ()) -> None:
        """Delete all objects under *prefix*, but for the names *keep*; a bucket that is gone is fine."""

    def inspect(self, name: str) -> Sight[ForeignBucket]:
        """Look at one bucket of any owner, with what matters to whoever takes it over; errors become Unknown."""

    def mark(self, name: str, labels: Mapping[str, str], version: int) -> None:
        """Add *labels* to a bucket; raise ConflictError when its settings are no longer those of *version*."""

    def unmark(self, order: BucketOrder, labels: Sequence[str]) -> None:
        """Take *labels* and what `create` has granted off a bucket; one that is gone is fine."""


class Vms(Protocol):
    """Observe, create, start and delete VMs."""

    def everywhere(self, label: str, value: str) -> Survey[Vm]:
        """List the VMs that carry the label in all zones, by one call; places without an answer are named."""

    def observe(self, name: str, zone: str) -> Sight[Vm]:
        """Look at one VM; errors become Unknown."""

    def disk_users(self, name: str, zone: str) -> Sight[tuple[str, ...]]:
        """Look at a disk of any owner: Present with the names of who has it, Absent when there is none."""

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Sight[tuple[Vm, ...]]:
        """List the VMs that carry the label in *zones*, all pages."""

    def create(self, order: VmOrder) -> Operation:
        """Ask for the VM; raise ConflictError when the name is taken."""

    def start(self, name: str, zone: str) -> Operation:
        """Ask for the start of a stopped VM."""

    def stop(self, name: str, zone: str) -> Operation | None:
        """Ask for the stop of a running VM, which keeps its disk; None when it is gone."""

    def delete(self, name: str, zone: str) -> Operation | None:
        """Ask for deletion; None when it is gone already."""

    def poll(self, operation: Operation) -> OperationResult:
        """Look at an operation once; a DONE operation that carries an error is a failure."""

    def host_keys(self, name: str, zone: str) -> tuple[str, ...]:
        """Return the public host keys (`ssh-ed25519 AAAA...`); NotFoundError while there are none."""

    def inspect(self, name: str, zone: str) -> Sight[ForeignVm]:
        """Look at one VM of any owner, with what matters to whoever takes it over; errors become Unknown."""

    def mark(self, name: str, zone: str, labels: Mapping[str, str], version: str = "") -> Operation:
        """Ask for *labels* beside those it has; raise ConflictError when they are no longer of *version*."""

    def unmark(self, name: str, zone: str, labels: Sequence[str]) -> Operation | None:
        """Ask for a VM without these *labels*; None when it is gone already."""

    def admit(self, name: str, zone: str, ssh_key: str) -> Operation:
        """Ask for an SSH key in the metadata of a VM, beside those that it has."""

    def expel(self, name: str, zone: str, ssh_key: str) -> Operation | None:
        """Ask for a VM without this SSH key in its metadata; None when it is gone already."""


class Nodes(Protocol):
    """Observe, create and delete TPU nodes."""

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Sight[tuple[Node, ...]]:
        """List the nodes that carry the label in *zones*, all pages; a partial answer is Unknown."""

    def everywhere(self, label: str, value: str) -> Survey[Node]:
        """List the nodes that carry the label in all zones, by one call; places without an answer are named."""

    def observe(self, name: str, zone: str) -> Sight[Node]:
        """Look at one node of any owner; errors become Unknown."""

    def create(self, order: NodeOrder) -> Operation:
        """Ask for the node; raise ConflictError when the name is taken."""

    def delete(self, name: str, zone: str) -> Operation | None:
        """Ask for deletion; None when it is gone already."""

    def poll(self, operation: Operation) -> OperationResult:
        """Look at an operation once."""

    def host_keys(self, name: str, zone: str, worker: int) -> tuple[str, ...]:
        """Return one worker's public host keys from its guest attributes; NotFoundError while there are none."""

    def inspect(self, name: str, zone: str) -> Sight[ForeignNode]:
        """Look at one node of any owner, with what cannot be changed on it; errors become Unknown."""

    def mark(self, name: str, zone: str, labels: Mapping[str, str], ssh_key: str) -> Operation:
        """Ask for *labels* and an SSH key on a node, beside those that it has."""

    def unmark(self, name: str, zone: str, labels: Sequence[str], ssh_key: str) -> Operation | None:
        """Ask for a node without these *labels* and this SSH key; None when it is gone already."""


@dataclass(frozen=True)
class StoredObject:
    """Describe one object of the bucket; *updated* is the bucket's time in seconds since the epoch."""

    name: str
    size: int
    generation: int
    updated: float
    data: bytes = b""


class QueuedResources(Protocol):
    """Observe, create and delete queued resources of one node each, which has the same name."""

    def observe(self, name: str, zone: str) -> Sight[QueuedResource]:
        """Look at one; errors become Unknown. A new one may be Absent for a moment."""

    def labelled(self, label: str, value: str, zones: Sequence[str]) -> Sight[tuple[QueuedResource, ...]]:
        """List those whose node carries the label in *zones*, all pages; a partial answer is Unknown."""

    def everywhere(self, label: str, value: str) -> Survey[QueuedResource]:
        """List those whose node carries the label in all zones; places without an answer are named."""

    def create(self, order: NodeOrder, wait: float | None) -> Operation:
        """Put the order into the queue, for at most *wait* seconds; raise ConflictError when the name is taken."""

    def delete(self, name: str, zone: str, *, force: bool) -> Operation | None:
        """Ask for deletion; None when it is gone already. Only with *force* its nodes are deleted as well."""

    def poll(self, operation: Operation) -> OperationResult:
        """Look at an operation once; that of a creation ends when the order is in the queue."""


LARGEST = 4 << 20
"""Most bytes of an object that are read unless more is asked for: machines write to the bucket too."""
MOST_OBJECTS = 1_000_000
"""Most names that one list is followed to unless fewer are asked for: machines may write any number."""


class Store(Protocol):
    """Read and write objects of the deployment's bucket."""

    def below(self, prefix: str) -> "Store":
        """Return the store whose names are meant below *prefix*; no call is made."""

    def read(self, name: str, offset: int = 0, limit: int = LARGEST) -> StoredObject | None:
        """
        Return an object with its data from *offset* on, *limit* bytes at most; None when it is not there.

        Bytes come as they are stored: none is unpacked on the way.
        """

    def sha256(self, name: str) -> str | None:
        """Read an object of any size and return the sha256 of its bytes in hex, None when it is not there."""

    def download(
        self, name: str, path: Path, sized: Callable[[int], object] | None = None, streams: int = 1
    ) -> str | None:
        """
        Write an object of any size to a file; return the sha256 of its bytes in hex, None: it is not there.

        *sized* is told the size before any byte comes, and ends it by what it raises. A large one comes in so
        many *streams*.
        """

    def write(self, name: str, data: bytes, if_generation: int | None = None) -> int:
        """Write an object, return its generation; 0: "must not exist". PreconditionError: it is another."""

    def upload(self, name: str, path: Path) -> int:
        """Write a file unless an object of that name exists; return the object's generation."""

    def list(self, prefix: str, most: int = MOST_OBJECTS) -> list[StoredObject]:
        """List all objects under *prefix*, without data. Raise UnknownCloudError for more than *most*."""

    def checksums(self, prefix: str) -> dict[str, tuple[int, str]]:
        """Return size and crc32c (base64, as the bucket shows it) of all objects under *prefix* by name."""

    def delete(self, name: str, if_generation: int | None = None, *, patient: bool = True) -> None:
        """
        Delete an object; one that is gone is fine. Raise PreconditionError as `write` does.

        Not *patient*, a refusal for the object's rate is raised and not waited for.
        """


@dataclass(frozen=True)
class Iap:
    """Name an instance as Google's Identity-Aware Proxy knows it; *relay* is a local cloud's, else empty."""

    project: str
    zone: str
    instance: str
    relay: str = ""


@dataclass(frozen=True)
class Host:
    """
    Say where a machine listens for SSH, which host keys it must show, and how it is reached.

    With *via* it is reached through that machine, with *iap* through Identity-Aware Proxy, else directly.
    """

    name: str
    address: str
    host_keys: tuple[str, ...]
    port: int = 22
    via: "Host | None" = None
    iap: Iap | None = None


@dataclass(frozen=True)
class RunResult:
    """Hold the end of a remote command."""

    exit_code: int
    stdout: str = ""
    stderr: str = ""


@dataclass(frozen=True)
class PushResult:
    """Hold what a push did on one machine; *sent_bytes* is 0 when the tree was there already."""

    host: str
    sent_bytes: int
    seconds: float
    error: str = ""


class Remote(Protocol):
    """Reach machines over SSH, all of them in parallel, each step with a deadline."""

    def push(self, hosts: Sequence[Host], bundle: Path, digest: str, root: str) -> list[PushResult]:
        """Put the bundle (a tar.gz) under `<root>/bundle/<sha256>` on every host: all of it, or nothing."""

    def put(self, hosts: Sequence[Host], data: bytes, target: str, mode: int) -> None:
        """Put a small file at *target* below the machine folder of every host, whole or not at all."""

    def run(self, hosts: Sequence[Host], command: str, deadline: float, stdin: str = "") -> list[RunResult]:
        """Run a shell command on every host; a lost channel raises RemoteError, it is never success."""

    def run_elevated(self, hosts: Sequence[Host], script: str, deadline: float) -> list[RunResult]:
        """Run a bash script with the rights that the machine folder needs; `$1` is that folder."""


@dataclass(frozen=True)
class CloudAccount:
    """Say who we are: project and the account that machines run as by default."""

    project: str
    default_service_account: str


@dataclass(frozen=True)
class Cloud:
    """
    Bundle the adapters of one cloud for one deployment.

    *memory* is where zones are remembered for all nodes of a fleet together, the *store* where there is no fleet.
    *inside* says that we run on a machine in the same network; *relay* is where a local cloud's
    Identity-Aware Proxy listens, empty for Google's own.
    """

    account: CloudAccount
    buckets: Buckets
    vms: Vms
    nodes: Nodes
    queued: QueuedResources
    store: Store
    remote: Remote
    memory: Store
    ssh_port: int = 22
    inside: bool = False
    relay: str = ""
