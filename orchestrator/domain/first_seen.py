"""Define doubtful states and the first of the consecutive observations that show them: one alone proves nothing."""

from dataclasses import dataclass
from enum import Enum

from orchestrator.domain.observation import NodeState
from orchestrator.domain.plan import Kind


class Condition(Enum):
    """What can be observed of a resource besides its state; the values are stored in the record."""

    ABSENT = "absent"
    WORKERS_STOPPED = "left"
    """Every worker of the TPU reports that it has stopped for good."""
    OTHER_CODE = "other-code"
    """A worker goes on reporting other code than was sent over SSH."""
    FROM_ZERO = "from-zero"
    """The job on the TPU has begun without a checkpoint; this stays for as long as the TPU is the newest."""
    UNHEALTHY = "unhealthy"
    MAINTENANCE = "maintenance"
    PROVISIONING = "provisioning"
    """The state of its queued resource."""
    QUEUE_FAILED = "queue-failed"
    MADE = "made"
    """Its time is the node's creation time, by the API's clock."""
    DELETION_REQUESTED = "deleting"
    UNRECORDED = "stranger"
    LAST_CREATING = "creating"
    """Its time is that of the last observation of the node in CREATING."""
    ATTEMPT = "attempt"
    """An attempt of the job on a TPU after the first one: `of_attempt`."""
    COMING = "coming"
    HAS_RUN = "has-run"
    RUNNING = "running"


@dataclass(frozen=True)
class FirstSeen:
    """
    One state of one resource.

    *id* is the incarnation of a TPU; its name if the number is ambiguous, because another computer's TPU may
    have the same number; empty if there is only one resource of that kind.
    """

    kind: Kind
    id: int | str
    state: NodeState | Condition


def of_node(incarnation: int | None, state: NodeState | Condition) -> FirstSeen:
    """Return the key for a state of the TPU with this incarnation."""
    return FirstSeen(Kind.NODE, incarnation or 0, state)


def of_name(name: str, sign: Condition) -> FirstSeen:
    """Return the key for a sign of the TPU with this name."""
    return FirstSeen(Kind.NODE, name, sign)


def of_attempt(incarnation: int, attempt: int) -> FirstSeen:
    """Return the key for an attempt of the job on the TPU with this incarnation."""
    return of_name(f"{incarnation}.{attempt}", Condition.ATTEMPT)


BUCKET_ABSENT = FirstSeen(Kind.BUCKET, "", Condition.ABSENT)
VM_ABSENT = FirstSeen(Kind.VM, "", Condition.ABSENT)
VM_COMING = FirstSeen(Kind.VM, "", Condition.COMING)
VM_HAS_RUN = FirstSeen(Kind.VM, "", Condition.HAS_RUN)
VM_RUNNING = FirstSeen(Kind.VM, "", Condition.RUNNING)
