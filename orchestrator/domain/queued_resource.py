"""What was seen of a queued resource: a request for a TPU node that waits until there is one."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from orchestrator.errors import Retry


class QueuedState(Enum):
    """Name the states of a queued resource (tpu v2 QueuedResourceState.State)."""

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
        # A state that is not known yet waits: taking it for an end would give the place in the queue away.
        QueuedState.STATE_UNSPECIFIED,
        QueuedState.CREATING,
        QueuedState.ACCEPTED,
        QueuedState.WAITING_FOR_RESOURCES,
    }
)
"""States of one that waits, however long that takes; ACCEPTED is what the service said for it before."""
ENDED = frozenset({QueuedState.SUSPENDING, QueuedState.SUSPENDED, QueuedState.FAILED})
"""States that lead to no node any more. They hold quota until they are deleted."""

LONGEST_RUN = 7 * 86400.0
"""Seconds that a flex-start TPU may run (docs/facts.md 1.5)."""


@dataclass(frozen=True)
class QueuedResource:
    """
    Describe a queued resource that was seen; *labels* are those of its node, which it names in *nodes*.

    In every state it holds quota until it is deleted. *by_user* says that somebody deleted the node of one
    that is SUSPENDING or SUSPENDED. One that is FAILED has the reason in *message*, *code*, *retry*, *hint*.
    At *until* one that still waits gives up, 0 when it waits without end.
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
