"""The part of the deployment file about notifications."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EventName = Literal["up", "preempted", "resumed", "stalled", "budget", "done", "failed"]
STRICT = {"extra": "forbid", "use_attribute_docstrings": True}
EVENTS: tuple[EventName, ...] = ("up", "preempted", "resumed", "stalled", "budget", "done", "failed")


@dataclass(frozen=True)
class NotifySpec:
    """Describe who is notified of events. `tpuctl notify test` tests it."""

    __pydantic_config__ = STRICT

    webhooks: tuple[str, ...] = ()
    """Where events are posted as JSON: secret://NAME, env://VARIABLE, or an https URL that is not a secret."""
    apprise: tuple[str, ...] = ()
    """Other services, with the extra `notify`: secret://NAME or env://VARIABLE with an Apprise URL."""
    hooks: Mapping[EventName, str] = field(default_factory=dict)
    """Programs of this computer by event, run without a shell; they get the event as JSON on standard input."""
    events: tuple[EventName, ...] = EVENTS
    """Events that webhooks and apprise get."""
