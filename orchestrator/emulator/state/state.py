"""Everything a local cloud remembers, as one value that can be written to disk."""

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from orchestrator.emulator.state.addresses import AddressPool
from orchestrator.emulator.state.billing import Usage
from orchestrator.emulator.state.disks import Disk
from orchestrator.emulator.state.faults import FaultSpec
from orchestrator.emulator.state.instance import Instance
from orchestrator.emulator.state.machines import Machine
from orchestrator.emulator.state.node import Node
from orchestrator.emulator.state.operations import Operation
from orchestrator.emulator.state.queued import QueuedResource


@dataclass(frozen=True)
class MachineState:
    """Tell what the metadata server shows about the life of a machine."""

    preempted: bool = False
    maintenance_event: str = "NONE"
    running: bool = False


@dataclass(frozen=True, order=True)
class Event:
    """Plan *kind* with *args* for the time *due*; *order* keeps equal times apart."""

    due: float
    order: int
    kind: str = field(compare=False)
    args: tuple[Any, ...] = field(compare=False)


@dataclass
class State:
    """Hold the state; *time* is the moment up to which events have happened."""

    time: float
    random: Random
    pool: AddressPool
    version: int = 0
    order: int = 0
    heap: list[Event] = field(default_factory=list)
    operations: dict[str, Operation] = field(default_factory=dict)
    open_operations: dict[str, Operation] = field(default_factory=dict)
    nodes: dict[tuple[str, str], Node] = field(default_factory=dict)
    queued: dict[tuple[str, str], QueuedResource] = field(default_factory=dict)
    instances: dict[tuple[str, str], Instance] = field(default_factory=dict)
    disks: dict[tuple[str, str], Disk] = field(default_factory=dict)
    firewalls: dict[str, dict[str, Any]] = field(default_factory=dict)
    machines: dict[str, Machine] = field(default_factory=dict)
    flags: dict[str, MachineState] = field(default_factory=dict)
    guest: dict[str, dict[tuple[str, str], str]] = field(default_factory=dict)
    usage: list[Usage] = field(default_factory=list)
    faults: dict[str, list[FaultSpec]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    replays: dict[str, tuple[str, str]] = field(default_factory=dict)
    unreachable: set[str] = field(default_factory=set)

    def __setstate__(self, known: dict[str, Any]) -> None:
        self.__dict__.update(
            {"queued": {}, "unreachable": set(), **known}
        )  # files of earlier versions have none
