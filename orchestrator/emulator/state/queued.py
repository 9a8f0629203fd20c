"""Queued resources of tpu v2: states, and the queued resource as a value."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from orchestrator.emulator.state.api_errors import OperationError
from orchestrator.emulator.state.faults import FaultSpec
from orchestrator.emulator.state.node import Node


class QueuedState(Enum):
    """Name the states as tpu v2 does; the values are its enum numbers."""

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
    """Say who began the end of the nodes; the values are the API's enum numbers."""

    USER = 1
    SERVICE = 2


# The service calls waiting WAITING_FOR_RESOURCES now, and ACCEPTED before; both mean the same.
WAITING = frozenset({QueuedState.ACCEPTED, QueuedState.WAITING_FOR_RESOURCES})

FLEX_START = "FLEX_START"
LONGEST_RUN = 7 * 86400
"""Seconds that a flex-start node may run: "up to 7 days" (docs/facts.md 1.5)."""

Tag = tuple[str, str, int, int]


@dataclass
class QueuedResource:
    """
    Record one queued resource. *body* is what the API shows of the caller's wishes.

    *wanted* are drafts of the nodes to make; they count against the quota as long as the queued
    resource exists. Until *shown_from* nobody can read it. It gets nodes between *not_before* and
    *not_after*. *fate* is the fault that its provisioning shall meet. *epoch* grows with each state,
    so that events planned before are seen to be out of date.
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
        """Return how long its nodes run at most when it is a flex-start one, else 0."""
        if self.body.get("provisioningModel") != FLEX_START:
            return 0.0
        return float(self.body.get("runDuration", {}).get("maxRunDuration", f"{LONGEST_RUN}s")[:-1])

    @property
    def path(self) -> str:
        return f"projects/{self.project}/locations/{self.zone}/queuedResources/{self.name}"

    @property
    def tag(self) -> Tag:
        """Return what an event carries to find this queued resource in its present state."""
        return self.zone, self.name, self.numeric_id, self.epoch

    def enter(self, state: QueuedState, initiator: Initiator | None = None) -> None:
        """Change the state and make events planned for the old one void."""
        self.state, self.initiator = state, initiator
        self.epoch += 1
