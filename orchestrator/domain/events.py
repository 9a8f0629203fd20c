"""Define events: shown to people at once, stored in the bucket for reports."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orchestrator.domain.plan import Kind, Verb


class EventKind(str, Enum):
    """
    What happened, as the word that is stored and printed: events in buckets keep theirs, so only add members.

    A change of a resource has a word of its own, `change_word`.
    """

    READY = "ready"
    VM_RUNNING = "vm-running"
    MAINTENANCE = "maintenance"
    REFUSED = "refused"
    PREEMPTED = "preempted"
    STARTED_OVER = "anew"
    FAILURE = "failure"
    WAITING = "waiting"
    PROGRESS = "progress"
    UNCOMMITTED = "uncommitted"
    JOURNAL = "journal"
    INVARIANT = "invariant"
    DISK = "disk"
    TAKEN_OVER = "taken-over"
    DELETE = "delete"
    DELETE_FAILED = "delete-failed"
    # Stored in buckets under the word of before.
    BUCKET_GIVEN_BACK = "bucket-released"
    VM_ADOPTED = "vm-adopted"
    VM_GIVEN_BACK = "vm-released"
    NODE_ADOPTED = "node-adopted"
    NODE_GIVEN_BACK = "node-released"

    __str__ = str.__str__


def change_word(kind: Kind, verb: Verb) -> str:
    """Return the word of an event about a change that was made, such as `node-create`."""
    return f"{kind.value}-{verb.word}"


@dataclass(frozen=True)
class Event:
    """
    One event; *at* is in seconds since the epoch, *kind* an EventKind or a `change_word`.

    Events that another version stored may have other words.
    """

    at: float
    kind: str
    message: str
    data: dict[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Return the event as `--json` prints it."""
        return {"schema": 1, **vars(self)}

    def to_json(self) -> bytes:
        """Return the event as it is stored."""
        # Stored in buckets for as long as they exist: only add keys, never rename one; `text` is the message.
        body = {"schema": 1, "at": self.at, "kind": self.kind, "text": self.message, "data": self.data}
        return json.dumps(body, sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Event":
        """Parse an event; raise ValueError if *text* is not one."""
        body = json.loads(text)
        return cls(float(body["at"]), str(body["kind"]), str(body["text"]), dict(body.get("data", {})))


Sink = Callable[[Event], None]
