"""Define queued resources of tpu v2: states, and the queued resource as a value."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from orchestrator.emulator.state.api_errors import OperationError
from orchestrator.emulator.state.values.faults import FaultSpec
from orchestrator.emulator.state.values.node import Node


class QueuedState(Enum):
    """The states of tpu v2; the values are its enum numbers."""

    CREATING = 1
    ACCEPTED = 2
    PROVISIONING = 3
    FAILED = 4
    DELETING = 5
    ACTIVE = 6
    SUSPENDING = 7
    SUSPENDED = 8
    WAITING_FOR_RESOURCES = 9


class Initiator(Enum):
    """Who started the end of the nodes; the values are the API's enum numbers."""

    USER = 1
    SERVICE = 2


# The service now uses WAITING_FOR_RESOURCES for waiting, and formerly ACCEPTED; both mean the same.
WAITING = frozenset({QueuedState.ACCEPTED, QueuedState.WAITING_FOR_RESOURCES})

FLEX_START = "FLEX_START"
MAX_RUN = 7 * 86400
"""Maximum seconds of a flex-start node: "up to 7 days" (docs/facts.md 1.5)."""

Tag = tuple[str, str, int, int]


@dataclass
class QueuedResource:
    """
    One queued resource.

    *body* is the caller's request as the API shows it. *wanted* are drafts of the nodes to make, which count
    against the quota as long as the queued resource exists. It is visible from *shown_from* on, and gets
    nodes between *not_before* and *not_after*. *fate* is the fault that applies to its provisioning. *epoch*
    grows with each state, which invalidates events planned before.
    """

    project: str
    zone: str
    name: str
    numeric_id: int
    body: dict[str, Any]
    wanted: tuple[Node, ...]
    created: float
    shown_from: float
    not_before: float
    not_after: float | None = None
    fate: FaultSpec | None = None
    state: QueuedState = QueuedState.CREATING
    initiator: Initiator | None = None
    error: OperationError | None = None
    epoch: int = 0

    @property
    def run_seconds(self) -> float:
        """Return the maximum run time of its nodes in seconds if it is flex-start, else 0."""
        if self.body.get("provisioningModel") != FLEX_START:
            return 0.0
        return float(self.body.get("runDuration", {}).get("maxRunDuration", f"{MAX_RUN}s")[:-1])

    @property
    def path(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/queuedResources/{self.name}"

    @property
    def tag(self) -> Tag:
        """Return the tag with which an event finds this queued resource in its present state."""
        return self.zone, self.name, self.numeric_id, self.epoch

    def enter(self, state: QueuedState, initiator: Initiator | None = None) -> None:
        """Change the state and invalidate events planned for the old one."""
        self.state, self.initiator = state, initiator
        self.epoch += 1
