"""What the rest of the world asks of the running agent: to stop, or to follow the gang."""

from __future__ import annotations

import enum
import os
import signal
import socket
import threading
import time
from dataclasses import dataclass
from typing import Callable, Mapping, Optional


class EndingKind(enum.Enum):
    """Name why an agent ends. UNCLAIMED: the job is finished, and no checkpoint holds what it trained."""

    DONE = "done"
    UNCLAIMED = "unclaimed"
    NOTICE = "notice"
    ASKED = "asked"
    FENCED = "fenced"
    GAVE_UP = "gave up"

    @property
    def phase(self) -> str:
        """Return the phase that the last heartbeat shows."""
        ends = {EndingKind.DONE: "done", EndingKind.UNCLAIMED: "unclaimed", EndingKind.GAVE_UP: "failed"}
        return ends.get(self, "stopped")

    @property
    def holds(self) -> bool:
        """Say whether cron must not start the agent again."""
        return self is not EndingKind.ASKED

    @property
    def must_be_reported(self) -> bool:
        """Say whether the controller must learn it before cron is held: a machine nobody needs costs money."""
        return self in (EndingKind.DONE, EndingKind.UNCLAIMED, EndingKind.GAVE_UP)


@dataclass(frozen=True)
class Ending:
    """Say why the agent ends."""

    kind: EndingKind
    reason: str


class JobInterrupted(Exception):  # noqa: N818 (an order, not an error)
    """Leave whatever is being waited for, because the agent is to end."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.reason)
        self.ending = ending


class Orders:
    """Collect orders from signals and side threads; the main thread looks at them wherever it waits."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending: Optional[Ending] = None
        self._newest_attempt = 0
        self.ended_at: Optional[float] = None

    def end(self, kind: EndingKind, reason: str) -> None:
        """Ask the agent to end; the first order stands."""
        with self._lock:
            if self._ending is None:
                self._ending, self.ended_at = Ending(kind, reason), time.monotonic()
        self._wake.set()

    def saw_attempt(self, number: int) -> None:
        """Note that the gang has gone on to an attempt."""
        with self._lock:
            self._newest_attempt = max(self._newest_attempt, number)
        self._wake.set()

    def overtaken(self, attempt: int) -> bool:
        """Say whether a later attempt than this one was seen."""
        with self._lock:
            return self._newest_attempt > attempt

    def ended(self) -> bool:
        """Say whether the agent was asked to end."""
        return self._ending is not None

    def check(self) -> None:
        """Raise JobInterrupted when the agent was asked to end."""
        if self._ending is not None:
            raise JobInterrupted(self._ending)

    def wait(self, seconds: float) -> None:
        """Wait, shorter when an order comes; raises JobInterrupted."""
        self.check()
        self._wake.wait(seconds)
        # An order between `wait` and `clear` is not lost: `check` comes after both.
        self._wake.clear()
        self.check()


def obey_signals(actions: Mapping[signal.Signals, Callable[[], None]]) -> None:
    """
    Run an action in a thread of its own whenever its signal comes.

    A Python signal handler interrupts the main thread anywhere, also while it holds a lock that the action
    needs. So the handlers do nothing, and the signal's number arrives through the wake-up descriptor.
    """
    reader, writer = socket.socketpair()
    # set_wakeup_fd asks for it: a full buffer must not block a signal handler.
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
    for number in actions:
        signal.signal(number, lambda _number, _frame: None)

    def listen() -> None:
        while True:
            for number in os.read(reader.fileno(), 64):
                action = actions.get(signal.Signals(number))
                if action is not None:
                    action()
            writer.fileno()  # Keeps the socket open as long as this thread lives.

    threading.Thread(target=listen, name="signals", daemon=True).start()
