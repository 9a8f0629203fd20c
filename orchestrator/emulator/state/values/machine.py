"""Define the interface between the pure model and the machines that it requests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True)
class Machine:
    """
    One machine: what it takes to boot it.

    *id* is unique for the lifetime of the machine and safe as a folder name: for a TPU worker
    `tpu-<zone>-<node>-<numeric id>-w<index>`, for a VM `vm-<zone>-<name>-<numeric id>`. *address* is the
    machine's own loopback address (127.x.y.z), which the API shows as its internal IP. *attributes* are the
    instance attributes in the metadata server (user metadata plus the platform's, for example
    agent-worker-number). A *private* machine has no external address. A *silent* one boots and never runs its
    startup script. *disks* are the folders of its data disks, in the order of their devices.
    """

    id: str
    numeric_id: int
    name: str
    kind: str  # "tpu" or "vm"
    zone: str
    project: str
    project_number: int
    address: str
    machine_type: str
    service_account: str
    scopes: tuple[str, ...]
    preemptible: bool
    attributes: Mapping[str, str] = field(default_factory=dict)
    tags: tuple[str, ...] = ()
    disk_bytes: int = 0  # 0: no own limit
    private: bool = False
    silent: bool = False
    disks: tuple[str, ...] = ()

    def __setstate__(self, known: dict[str, object]) -> None:
        # States stored by earlier versions have the field under its old name.
        self.__dict__.update({"silent" if key == "mute" else key: value for key, value in known.items()})


class Machines(Protocol):
    """The machines: boot, warn, stop and remove. Every call returns at once."""

    def boot(self, machine: Machine) -> None:
        """Start the machine; a disk kept by `stop` is used again."""

    def notice(self, machine_id: str) -> None:
        """Give the machine its notice: shutdown scripts start now (ACPI G2 soft off)."""

    def changed(self, machine_id: str) -> None:
        """Take note that the machine's metadata has changed, and wake its long-polls."""

    def stop(self, machine_id: str) -> None:
        """Kill every process of the machine and keep its disk."""

    def remove(self, machine_id: str) -> None:
        """Kill every process of the machine and destroy its disk."""

    def serial(self, machine_id: str) -> bytes:
        """Return what the machine has printed on serial port 1 so far."""


class NoMachines:
    """Records requests and boots nothing, for simulations on a virtual clock."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []

    def boot(self, machine: Machine) -> None:
        self.calls.append(("boot", machine.id))

    def notice(self, machine_id: str) -> None:
        self.calls.append(("notice", machine_id))

    def changed(self, machine_id: str) -> None:
        """Do nothing, as there are no long-polls."""

    def stop(self, machine_id: str) -> None:
        self.calls.append(("stop", machine_id))

    def remove(self, machine_id: str) -> None:
        self.calls.append(("remove", machine_id))

    def serial(self, machine_id: str) -> bytes:
        return b""
