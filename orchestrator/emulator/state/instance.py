"""VMs of Compute Engine: statuses and the VM as a value."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orchestrator.emulator.state.tables import VmType


class Status(Enum):
    """Name the statuses as Compute Engine does; a stopped VM is TERMINATED."""

    PROVISIONING = "PROVISIONING"
    STAGING = "STAGING"
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"
    TERMINATED = "TERMINATED"
    REPAIRING = "REPAIRING"
    SUSPENDING = "SUSPENDING"
    SUSPENDED = "SUSPENDED"
    DEPROVISIONING = "DEPROVISIONING"


class Action(Enum):
    """Say what the end of a spot VM or of its run time does to it."""

    STOP = "STOP"
    DELETE = "DELETE"


@dataclass(frozen=True)
class Attachment:
    disk: str
    boot: bool
    auto_delete: bool
    device: str


@dataclass
class Instance:
    """
    Record one VM. *body* holds the caller's other fields, *scheduling* the normalised ones.

    *epoch* grows with each change of status, so that events planned before are out of date.
    """

    project: str
    zone: str
    name: str
    numeric_id: int
    type: VmType
    address: str
    body: dict[str, Any]
    created: float
    service_account: str
    scopes: tuple[str, ...]
    scheduling: dict[str, Any]
    labels: dict[str, str]
    metadata: dict[str, str]
    tags: tuple[str, ...]
    disks: tuple[Attachment, ...] = ()
    status: Status = Status.PROVISIONING
    epoch: int = 0
    last_start: float | None = None
    last_stop: float | None = None
    deadline: float | None = None
    network: str = "default"
    subnetwork: str = "default"

    @property
    def path(self) -> str:
        return f"projects/{self.project}/zones/{self.zone}/instances/{self.name}"

    @property
    def machine_id(self) -> str:
        return f"vm-{self.zone}-{self.name}-{self.numeric_id}"

    @property
    def spot(self) -> bool:
        """Say whether the VM may be preempted (spot or legacy preemptible)."""
        return bool(self.scheduling.get("preemptible"))

    @property
    def action(self) -> Action:
        return Action(self.scheduling.get("instanceTerminationAction", "STOP"))

    def enter(self, status: Status) -> None:
        """Change the status and make events planned for the old one void."""
        self.status = status
        self.epoch += 1


@dataclass
class Disk:
    """Record a persistent disk; *user* is the name of the VM that has it, or empty."""

    zone: str
    name: str
    numeric_id: int
    size_gib: int
    type: str
    image: str
    created: float
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)
