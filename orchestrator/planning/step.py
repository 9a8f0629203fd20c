"""What one resource asks of a pass."""

from dataclasses import dataclass

from orchestrator.domain.plan import Change


@dataclass(frozen=True)
class Step:
    """
    Hold one resource's changes, or what it waits for and when to look again (seconds).

    *blocked* says that another resource has to come first.
    """

    changes: tuple[Change, ...] = ()
    waiting: str = ""
    wake_in: float | None = None
    blocked: bool = False
