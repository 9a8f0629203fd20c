"""The state of a service (the loop or a sidecar) on a machine, in the words of run-watch.sh and run-sidecars.sh."""

from dataclasses import dataclass
from enum import Enum


class ServicePhase(Enum):
    """What a service is at; OTHER is any word of a later or a strange machine, and none at all."""

    STARTING = "starting"
    INSTALLING = "installing"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    ENDED = "ended"
    OTHER = ""


@dataclass(frozen=True)
class ServiceState:
    """The *phase*, and the *text* of the machine with its reason, for people."""

    phase: ServicePhase = ServicePhase.OTHER
    text: str = ""


def service_state(text: str) -> ServiceState:
    """Parse what a machine wrote, for example `failed: no network` or `ended with status 1`."""
    word = text.replace(":", " ").partition(" ")[0]
    known = {phase.value: phase for phase in ServicePhase}
    return ServiceState(known.get(word, ServicePhase.OTHER), text)
