"""Grade findings: of `tpuctl check`, of `doctor`, of the deployment file."""

from collections.abc import Iterable
from enum import Enum


class Level(Enum):
    """
    Grade a finding: fine, good to know, likely to hurt, or not to be started like this.

    What is unknown stops nothing.
    """

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    STOP = "stop"
    UNKNOWN = "unknown"


def stops(levels: Iterable[Level]) -> bool:
    """Return whether a finding forbids the start; warnings and what is unknown do not."""
    return Level.STOP in levels
