"""Define TPU nodes: states, the conditions of each verb, and the node as a value."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from orchestrator.emulator.state.tables import Accelerator
from orchestrator.emulator.state.values.faults import FaultSpec
from orchestrator.emulator.state.values.machine import Machine


class NodeState(Enum):
    """The states of tpu v2; the values are its enum numbers."""

    CREATING = 1
    READY = 2
    RESTARTING = 3
    REIMAGING = 4
    DELETING = 5
    REPAIRING = 6
    STOPPED = 8
    STOPPING = 9
    STARTING = 10
    PREEMPTED = 11
    TERMINATED = 12
    HIDING = 13
    HIDDEN = 14
    UNHIDING = 15
    UNKNOWN = 16


class Health(Enum):
    """The health values of tpu v2; the values are its enum numbers."""

    UNSPECIFIED = 0
    HEALTHY = 1
    TIMEOUT = 3
    UNHEALTHY_TENSORFLOW = 4
    UNHEALTHY_MAINTENANCE = 5


S = NodeState
BUSY = frozenset({S.CREATING, S.DELETING, S.STOPPING, S.STARTING, S.RESTARTING, S.REIMAGING})
DEAD = frozenset({S.PREEMPTED, S.TERMINATED})

# verb -> (states it starts from, state meanwhile, state afterwards); None: unchanged or deleted
VERBS: Mapping[str, tuple[frozenset[NodeState], NodeState | None, NodeState | None]] = {
    "delete": (frozenset(S) - {S.DELETING}, S.DELETING, None),
    "stop": (frozenset({S.READY}), S.STOPPING, S.STOPPED),
    "start": (frozenset({S.STOPPED}), S.STARTING, S.READY),
    "update": (frozenset({S.READY, S.STOPPED, S.REPAIRING}), None, None),
}


@dataclass
class Node:
    """
    One node.

    *body* holds the fields that the caller wrote, as JSON with enum names. *epoch* grows with each change of
    state by a verb or a preemption, which invalidates events planned before. *before* is the state to return
    to after a failed verb. *queued* is the queued resource that made the node, *multislice* means that it
    made several, *flex* that they are flex-start. *birth* is the fault that applies to its creation,
    *maintenance* what the API says about the next maintenance.
    """

    project: str
    zone: str
    name: str
    numeric_id: int
    uid: str
    accelerator: Accelerator
    body: dict[str, Any]
    created: float
    service_account: str
    scopes: tuple[str, ...]
    state: NodeState = NodeState.CREATING
    health: Health = Health.UNSPECIFIED
    health_description: str = ""
    workers: tuple[Machine, ...] = ()
    epoch: int = 0
    before: NodeState = NodeState.CREATING
    queued: str = ""
    multislice: bool = False
    flex: bool = False
    birth: FaultSpec | None = None
    maintenance: Mapping[str, Any] | None = None

    @property
    def path(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/nodes/{self.name}"

    @property
    def preemptible(self) -> bool:
        """Return whether the node has the 24 hour limit."""
        return bool(self.body.get("schedulingConfig", {}).get("preemptible"))

    @property
    def reserved(self) -> bool:
        return bool(self.body.get("schedulingConfig", {}).get("reserved"))

    @property
    def spot(self) -> bool:
        """Return whether the node may be preempted, by either flag."""
        return self.preemptible or bool(self.body.get("schedulingConfig", {}).get("spot"))

    def enter(self, state: NodeState) -> None:
        """Change the state and invalidate events planned for the old one."""
        self.before, self.state = self.state, state
        self.epoch += 1
