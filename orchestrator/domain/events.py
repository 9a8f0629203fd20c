"""Define events: shown to people at once, stored in the bucket for reports."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from orchestrator.domain.plan import Kind, Verb, published_change, stored_change


class EventKind(str, Enum):
    """
    What happened, as the word that is printed; it is stored too, except for a TPU, which buckets call a node.

    Events in buckets keep theirs, so only add members.

    A change of a resource has a word of its own, `change_word`.
    """

    READY = "ready"
    VM_RUNNING = "vm-running"
    MAINTENANCE = "maintenance"
    REFUSED = "refused"
    PREEMPTED = "preempted"
    STARTED_OVER = "anew"
    ATTEMPT = "attempt"
    FAILURE = "failure"
    WAITING = "waiting"
    PAUSED = "paused"
    GOES_ON = "goes-on"
    PROGRESS = "progress"
    UNCOMMITTED = "uncommitted"
    CHECKPOINT_IGNORED = "checkpoint-ignored"
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
    TPU_ADOPTED = "tpu-adopted"
    TPU_GIVEN_BACK = "tpu-released"

    __str__ = str.__str__


def change_word(kind: Kind, verb: Verb) -> str:
    """Return the word of an event about a change that was made, such as `tpu-create`."""
    return f"{kind.word}-{verb.word}"


_TPU, _NODE = f"{Kind.NODE.word}-", f"{Kind.NODE.value}-"
"""How the word of an event about a TPU begins, when it is printed and when it is stored."""


def _begun(word: str, was: str, new: str) -> str:
    return new + word.removeprefix(was) if word.startswith(was) else word


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

    @property
    def stored_kind(self) -> str:
        """Return the kind as the bucket has it, in the event and in the name of its object."""
        return _begun(self.kind, _TPU, _NODE)

    def as_dict(self) -> dict[str, Any]:
        """Return the event as `--json` prints it."""
        return {"schema": 1, **vars(self)}

    def to_json(self) -> bytes:
        """Return the event as it is stored."""
        # Stored in buckets for as long as they exist: only add keys, never rename one; `text` is the message.
        data = stored_change(self.data) if _is_change(self.data) else self.data
        body = {"schema": 1, "at": self.at, "kind": self.stored_kind, "text": self.message, "data": data}
        return json.dumps(body, sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Event":
        """Parse an event; raise ValueError if *text* is not one."""
        body = json.loads(text)
        data = dict(body.get("data", {}))
        data = published_change(data) if _is_change(data) else data
        return cls(float(body["at"]), _begun(str(body["kind"]), _NODE, _TPU), str(body["text"]), data)


def _is_change(data: dict[str, Any]) -> bool:
    return {"kind", "verb"} <= set(data)


Sink = Callable[[Event], None]
