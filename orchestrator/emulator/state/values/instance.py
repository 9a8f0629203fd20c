"""Define VMs of Compute Engine: statuses and the VM as a value."""

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orchestrator.emulator.state.tables import VmType


class Status(Enum):
    """The statuses under Compute Engine's names; a stopped VM is TERMINATED."""

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
    """What a preemption or the end of its run time does to a VM."""

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
    One VM; *body* holds the caller's other fields, *scheduling* the normalised ones.

    *epoch* grows with each change of status, which invalidates events planned before.
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
        """Return whether the VM may be preempted (spot or legacy preemptible)."""
        return bool(self.scheduling.get("preemptible"))

    @property
    def action(self) -> Action:
        return Action(self.scheduling.get("instanceTerminationAction", "STOP"))

    def enter(self, status: Status) -> None:
        """Change the status and invalidate events planned for the old one."""
        self.status = status
        self.epoch += 1


@dataclass
class Disk:
    """A persistent disk; *user* is the name of its VM, "" for none."""

    zone: str
    name: str
    numeric_id: int
    size_gib: int
    type: str
    image: str
    created: float
    user: str = ""
    labels: dict[str, str] = field(default_factory=dict)
