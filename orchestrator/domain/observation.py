"""
Define observations: Present with a state, Absent, or Unknown with the reason.

Unknown is not absent. Nothing is created or deleted because of Unknown.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Generic, TypeVar

from orchestrator.domain.heartbeat import Heartbeat
from orchestrator.domain.machines.capacity import CapacityHistory
from orchestrator.domain.machines.maintenance import Maintenance
from orchestrator.domain.machines.node_price import Prices
from orchestrator.domain.machines.queued_resource import QueuedResource
from orchestrator.domain.plan import Kind, Verb
from orchestrator.errors import Retry

T = TypeVar("T")


@dataclass(frozen=True)
class Present(Generic[T]):
    """A state that the cloud has shown."""

    value: T


@dataclass(frozen=True)
class Absent:
    """The cloud answered completely, and the resource does not exist or is not this deployment's."""


@dataclass(frozen=True)
class Unknown:
    """
    Nothing is known, because of an error, a time-out or a partial answer.

    *hint* is the error's next step. *denied* says that the login lacks the permission to look.
    """

    message: str
    retry: Retry = Retry.TRANSIENT
    hint: str = ""
    denied: bool = False


Observed = Present[T] | Absent | Unknown


class NodeState(Enum):
    """The states of a TPU node (tpu v2 Node.State); the values are the API's numbers."""

    STATE_UNSPECIFIED = 0
    CREATING = 1
    READY = 2
    RESTARTING = 3
    REIMAGING = 4
    DELETING = 5
    REPAIRING = 6
    # 7 is not used by the API (docs/facts.md 1.3).
    STOPPED = 8
    STOPPING = 9
    STARTING = 10
    PREEMPTED = 11
    TERMINATED = 12
    HIDING = 13
    HIDDEN = 14
    UNHIDING = 15
    UNKNOWN = 16


class VmState(Enum):
    """The states of a Compute Engine VM."""

    PROVISIONING = "PROVISIONING"
    STAGING = "STAGING"
    RUNNING = "RUNNING"
    PENDING_STOP = "PENDING_STOP"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    REPAIRING = "REPAIRING"
    DEPROVISIONING = "DEPROVISIONING"
    PENDING = "PENDING"
    OTHER = "OTHER"


@dataclass(frozen=True)
class Worker:
    """One machine of a slice and its addresses."""

    index: int
    internal_ip: str
    external_ip: str = ""


@dataclass(frozen=True)
class Node:
    """
    A TPU node of ours as the API shows it; *created_at* is in seconds since the epoch.

    *timed_out* is the health TIMEOUT, which may mean that the node is still warming up. *queued* is the
    queued resource that creates or created it, None for a direct request. Without *has_machine* only the
    queued resource exists, which costs nothing. *maintenance* is the next one that the API announces. *scopes*
    limit what its account may be used for, empty if not known.
    """

    name: str
    zone: str
    state: NodeState
    incarnation: int | None
    # True if the API says nothing: a missing field is no reason to give a TPU up.
    healthy: bool = True
    health: str = ""
    timed_out: bool = False
    workers: tuple[Worker, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    spot: bool = False
    created_at: float = 0.0
    queued: QueuedResource | None = None
    has_machine: bool = True
    maintenance: Maintenance | None = None
    scopes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ForeignNode:
    """
    A TPU that tpuctl did not create, as far as an adoption needs it.

    *account* and *scopes* are what its machines run as, *network* is the last part of its path, *in_queue*
    the name of its queued resource, empty without one.
    """

    node: Node
    type: str
    runtime: str
    account: str
    scopes: tuple[str, ...]
    external_ip: bool
    network: str = ""
    in_queue: str = ""


@dataclass(frozen=True)
class Vm:
    """
    A VM as the API shows it; *machine_type* and *scopes* are empty, *disk_gb* and the times 0 if not known.

    *scopes* limit what its accounts may be used for. *started_at* and *stopped_at* are those of the last start and
    stop.
    """

    name: str
    zone: str
    state: VmState
    internal_ip: str = ""
    external_ip: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    spot: bool = False
    machine_type: str = ""
    disk_gb: int = 0
    scopes: tuple[str, ...] = ()
    started_at: float = 0.0
    stopped_at: float = 0.0


@dataclass(frozen=True)
class ForeignVm:
    """
    A VM that tpuctl did not create, as far as an adoption needs it.

    *os_login* says that keys in its metadata are ignored, *protected* that it cannot be deleted, *lasting*
    are the disks that outlive it. *version* is that of its labels.
    """

    vm: Vm
    account: str = ""
    network: str = ""
    os_login: bool = False
    protected: bool = False
    lasting: tuple[str, ...] = ()
    version: str = ""


@dataclass(frozen=True)
class Bucket:
    """A bucket as the API shows it; *location* is lower case."""

    name: str
    location: str
    labels: Mapping[str, str] = field(default_factory=dict)
    soft_delete_seconds: int = 0
    uniform_access: bool = True
    public_access_prevented: bool = True


@dataclass(frozen=True)
class ForeignBucket:
    """
    A bucket that tpuctl did not create, as far as an adoption needs it.

    *own_project* says that it is in the project's list, *retention* is how many seconds objects cannot be
    deleted or replaced, *deletes* says that a lifecycle rule deletes objects, *held* that new objects are
    held, *public* that everyone may read it. *objects* are the names of some of its objects. *version* is
    that of its settings.
    """

    bucket: Bucket
    own_project: bool = True
    storage_class: str = "STANDARD"
    retention: int = 0
    versioning: bool = False
    deletes: bool = False
    held: bool = False
    requester_pays: bool = False
    public: bool = False
    objects: tuple[str, ...] = ()
    version: int = 0


@dataclass(frozen=True)
class Operation:
    """Refer to a long-running operation that a pass started and later passes poll."""

    id: str
    kind: Kind
    verb: Verb
    name: str
    zone: str
    incarnation: int | None = None
    started_at: float = 0.0


@dataclass(frozen=True)
class OperationResult:
    """
    The answer of one poll; *retry*, *message* and *hint* are set if the operation failed.

    *forgotten* says that the service no longer knows it: it has ended, and only lists show how.
    """

    operation: Operation
    done: bool
    retry: Retry | None = None
    code: str = ""
    message: str = ""
    hint: str = ""
    forgotten: bool = False


@dataclass(frozen=True)
class Claim:
    """The incarnation that has won a race (object `.tpuctl/claim/<round>`, written once)."""

    round: int
    incarnation: int


@dataclass(frozen=True)
class World:
    """
    Everything that one pass has observed.

    *nodes* holds all nodes with our label over every zone ever used; an empty tuple means that all of those
    zones answered completely and had none. *claim* names the winner of a race. *create_pauses* says until when the
    create budget holds a zone back, *stockouts* are those of other deployments. *prices* are the table's for
    the file's types and zones; empty if they were not looked up. *boot_heartbeats* are those of startup
    scripts, for workers whose agents have not reported yet: the machine is alive, and nothing else is known
    of it. They do not count as heartbeats. *heartbeat_interval* is the longest time in seconds between two reports
    of a TPU's own workers, None if the job runs on the VM, whose reports say nothing about the TPU.
    """

    bucket: Observed[Bucket]
    vm: Observed[Vm]
    nodes: Observed[tuple[Node, ...]]
    heartbeats: Observed[tuple[Heartbeat, ...]]
    operations: tuple[OperationResult, ...] = ()
    observed_at: float = 0.0
    claim: Observed[Claim] = field(default_factory=Absent)
    create_pauses: Mapping[str, float] = field(default_factory=dict)
    stockouts: CapacityHistory = ()
    prices: Prices = field(default_factory=Prices)
    boot_heartbeats: tuple[Heartbeat, ...] = ()
    heartbeat_interval: float | None = None

    @property
    def known_nodes(self) -> tuple[Node, ...]:
        """Return the observed nodes; empty if they could not be listed, so an empty result proves no absence."""
        return self.nodes.value if isinstance(self.nodes, Present) else ()

    @property
    def known_heartbeats(self) -> tuple[Heartbeat, ...]:
        """Return the observed heartbeats; empty if they could not be read."""
        return self.heartbeats.value if isinstance(self.heartbeats, Present) else ()

    def heartbeats_of(self, incarnation: int | None) -> tuple[Heartbeat, ...]:
        """Return the observed heartbeats of one incarnation."""
        return tuple(heartbeat for heartbeat in self.known_heartbeats if heartbeat.incarnation == incarnation)
