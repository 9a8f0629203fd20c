"""Doubtful states, with the first of the observations in a row that show them: one alone proves nothing."""

from dataclasses import dataclass
from enum import Enum

from orchestrator.domain.observation import NodeState
from orchestrator.domain.plan import Kind


class Sign(Enum):
    """Name what may be seen of a resource beside its state; values are those of the stored record."""

    ABSENT = "absent"
    WORKERS_STOPPED = "left"
    """Every worker of the TPU says that it has stopped for good."""
    UNHEALTHY = "unhealthy"
    MAINTENANCE = "maintenance"
    PROVISIONING = "provisioning"
    """The state of its queued resource."""
    QUEUE_FAILED = "queue-failed"
    MADE = "made"
    """Its time is that of the node's creation, by the API's clock."""
    DELETION_ASKED = "deleting"
    UNRECORDED = "stranger"
    LAST_CREATING = "creating"
    """Its time is that of the last look that saw the node being created."""
    COMING = "coming"
    HAS_RUN = "has-run"


@dataclass(frozen=True)
class FirstSeen:
    """
    Name one state of one resource.

    *id* is the incarnation of a TPU; its name where a number would not do, since a TPU of another computer may
    bear the same; empty where there is only one resource of that kind.
    """

    kind: Kind
    id: int | str
    state: NodeState | Sign


def of_node(incarnation: int | None, state: NodeState | Sign) -> FirstSeen:
    """Return the state of the TPU of one incarnation."""
    return FirstSeen(Kind.NODE, incarnation or 0, state)


def of_name(name: str, sign: Sign) -> FirstSeen:
    """Return the state of the TPU of that name."""
    return FirstSeen(Kind.NODE, name, sign)


BUCKET_ABSENT = FirstSeen(Kind.BUCKET, "", Sign.ABSENT)
VM_ABSENT = FirstSeen(Kind.VM, "", Sign.ABSENT)
VM_COMING = FirstSeen(Kind.VM, "", Sign.COMING)
VM_HAS_RUN = FirstSeen(Kind.VM, "", Sign.HAS_RUN)
