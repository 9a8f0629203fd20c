"""Name what an agent is doing, as its heartbeat says it."""

from enum import Enum
from typing import Optional


class Phase(str, Enum):
    """
    What an agent is doing. UNKNOWN stands for an unreadable report; no agent writes it.

    ENDED: the job has exited with status 0; its last save is being verified and uploaded, or other workers have
    not ended yet. UNCOMMITTED: what it has saved is no checkpoint. A member is the word itself, which reports and
    names in the bucket have.
    """

    BOOT = "boot"
    SETUP = "setup"
    RESTORE = "restore"
    RUN = "run"
    STOPPING = "stopping"
    STOPPED = "stopped"
    ENDED = "ended"
    DONE = "done"
    UNCOMMITTED = "uncommitted"
    FAILED = "failed"
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Optional["Phase"]:
        return cls.UNCOMMITTED if value == "unclaimed" else None  # from agents of earlier releases

    # Pythons differ in how they print a member; here it is always the word.
    def __str__(self) -> str:
        return str(self.value)

    def __format__(self, form: str) -> str:
        return format(self.value, form)


WELL = (Phase.DONE, Phase.UNCOMMITTED)
"""The job has ended by itself with status 0."""
ENDS = (*WELL, Phase.FAILED)
"""The job has ended, and is not started again."""
AT_REST = (Phase.STOPPED, *ENDS)
"""The machine has committed everything it had."""
