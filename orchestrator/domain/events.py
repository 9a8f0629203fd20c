"""Define events: shown to people at once, stored in the bucket for reports."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Event:
    """Hold one event; *at* is in seconds since the epoch, *kind* a stable word for programs."""

    at: float
    kind: str
    text: str
    data: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> bytes:
        """Return the event as one JSON object."""
        # Stored in buckets for as long as they exist: only add keys, never rename one.
        body = {"schema": 1, "at": self.at, "kind": self.kind, "text": self.text, "data": self.data}
        return json.dumps(body, sort_keys=True).encode()

    @classmethod
    def from_json(cls, text: bytes) -> "Event":
        """Parse an event; raise ValueError if *text* is not one."""
        body = json.loads(text)
        return cls(float(body["at"]), str(body["kind"]), str(body["text"]), dict(body.get("data", {})))


Sink = Callable[[Event], None]
