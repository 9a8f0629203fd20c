"""The part of the deployment file that says whom to tell what."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

EventName = Literal["up", "preempted", "resumed", "stalled", "budget", "done", "failed"]
STRICT = {"extra": "forbid", "use_attribute_docstrings": True}
EVENTS: tuple[EventName, ...] = ("up", "preempted", "resumed", "stalled", "budget", "done", "failed")


@dataclass(frozen=True)
class NotifySpec:
    """Describe who is told when something happens. `tpuctl notify test` tries it."""

    __pydantic_config__ = STRICT

    webhooks: tuple[str, ...] = ()
    """Where events are posted as JSON: secret://NAME, env://VARIABLE, or an https URL that is no secret."""
    apprise: tuple[str, ...] = ()
    """Other services by the extra `notify`: secret://NAME or env://VARIABLE that holds an Apprise URL."""
    hooks: Mapping[EventName, str] = field(default_factory=dict)
    """Programs of this computer by event, run without a shell; the event comes as JSON on standard input."""
    events: tuple[EventName, ...] = EVENTS
    """Which events webhooks and apprise are told."""
