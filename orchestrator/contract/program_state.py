"""The state of a program that a machine keeps running, in the words of run-watch.sh and run-sidecars.sh."""

from dataclasses import dataclass
from enum import Enum


class ProgramPhase(Enum):
    """What a program is at; OTHER is any word of a later or a strange machine, and none at all."""

    STARTING = "starting"
    INSTALLING = "installing"
    RUNNING = "running"
    STOPPED = "stopped"
    FAILED = "failed"
    ENDED = "ended"
    OTHER = ""


@dataclass(frozen=True)
class ProgramState:
    """The *phase*, and the *text* of the machine with its reason, for people."""

    phase: ProgramPhase = ProgramPhase.OTHER
    text: str = ""


def program_state(text: str) -> ProgramState:
    """Parse what a machine wrote, for example `failed: no network` or `ended with status 1`."""
    word = text.replace(":", " ").partition(" ")[0]
    known = {phase.value: phase for phase in ProgramPhase}
    return ProgramState(known.get(word, ProgramPhase.OTHER), text)
