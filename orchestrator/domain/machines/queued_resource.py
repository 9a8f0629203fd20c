"""Describe queued resources: requests for a TPU node that wait until Google has capacity."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.errors import Retry


class QueuedState(Enum):
    """The states of a queued resource (tpu v2 QueuedResourceState.State)."""

    STATE_UNSPECIFIED = 0
    CREATING = 1
    ACCEPTED = 2
    PROVISIONING = 3
    FAILED = 4
    DELETING = 5
    ACTIVE = 6
    SUSPENDING = 7
    SUSPENDED = 8
    WAITING_FOR_RESOURCES = 9


IN_QUEUE = frozenset(
    {
        # An unknown state counts as waiting: to treat it as an end would give up the place in the queue.
        QueuedState.STATE_UNSPECIFIED,
        QueuedState.CREATING,
        QueuedState.ACCEPTED,
        QueuedState.WAITING_FOR_RESOURCES,
    }
)
"""States of a waiting request, however long it takes; ACCEPTED is the service's earlier name for it."""
ENDED = frozenset({QueuedState.SUSPENDING, QueuedState.SUSPENDED, QueuedState.FAILED})
"""States from which no node comes any more. They hold quota until they are deleted."""

MAX_RUN = 7 * 86400.0
"""Seconds that a flex-start TPU may run (docs/facts.md 1.5)."""


@dataclass(frozen=True)
class QueuedResource:
    """
    An observed queued resource; *labels* are those of its node, which *nodes* names.

    In every state it holds quota until it is deleted. *by_user* says that the node of a SUSPENDING or
    SUSPENDED one was deleted by a user. A FAILED one has the reason in *message*, *code*, *retry*, *hint*.
    *until* is when a waiting one gives up, 0 for never.
    """

    name: str
    zone: str
    state: QueuedState
    incarnation: int | None
    nodes: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    spot: bool = False
    created_at: float = 0.0
    until: float = 0.0
    by_user: bool = False
    retry: Retry | None = None
    code: str = ""
    message: str = ""
    hint: str = ""
