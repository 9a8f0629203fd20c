"""Report what would come again in each pass once: bugs of our own, and a disk that takes nothing."""

from collections.abc import Callable

from orchestrator.domain.events import Event, EventKind


class Alarms:
    """Emit each bug of ours once, and each change of this computer's disk."""

    def __init__(self, sink: Callable[[Event], None]) -> None:
        self._sink = sink
        self._reported: set[str] = set()
        self._disk = ""

    def bug(self, event: Event) -> None:
        """Emit *event* unless one with the same text was emitted; two bugs may alternate."""
        if event.message not in self._reported:
            self._reported.add(event.message)
            self._sink(event)

    def disk(self, message: str, now: float) -> None:
        """Emit an event when record and journal go to the bucket only, and when the disk takes them again."""
        if bool(message) != bool(self._disk):
            text = (
                f"{message}; record and journal are kept in the bucket alone, all else continues"
                if message
                else "this computer's disk takes record and journal again"
            )
            self._sink(Event(now, EventKind.DISK, text))
        self._disk = message
