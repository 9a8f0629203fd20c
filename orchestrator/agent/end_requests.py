"""Request the end of the running agent, or that it follows the gang to a later attempt."""

from __future__ import annotations

import enum
import os
import signal
import socket
import threading
from dataclasses import dataclass
from typing import Callable, Mapping, Optional

from orchestrator.contract.clock import Clock
from orchestrator.contract.phase import Phase


class EndingKind(enum.Enum):
    """Why an agent ends. UNCOMMITTED: the job has finished, but no checkpoint holds its result."""

    DONE = "done"
    UNCOMMITTED = "uncommitted"
    NOTICE = "notice"
    ASKED = "asked"
    FENCED = "fenced"
    CUT_OFF = "cut off"
    GAVE_UP = "gave up"

    @property
    def phase(self) -> Phase:
        """Return the phase in the last heartbeat."""
        ends = {
            EndingKind.DONE: Phase.DONE, EndingKind.UNCOMMITTED: Phase.UNCOMMITTED,
            EndingKind.GAVE_UP: Phase.FAILED,
        }  # fmt: skip
        return ends.get(self, Phase.STOPPED)

    @property
    def in_log(self) -> str:
        """Return the first words of the agent's last line, one of `agent_lines.ENDINGS`."""
        return "stopped" if self is EndingKind.ASKED else self.value

    @property
    def holds(self) -> bool:
        """Return whether cron must not start the agent again."""
        return self not in (EndingKind.ASKED, EndingKind.CUT_OFF)

    @property
    def must_be_reported(self) -> bool:
        """Return whether the controller must see the report before cron is stopped, so that billing ends."""
        return self in (EndingKind.DONE, EndingKind.UNCOMMITTED, EndingKind.GAVE_UP)


@dataclass(frozen=True)
class Ending:
    """The kind and the reason of the agent's end."""

    kind: EndingKind
    message: str


class AgentMustEnd(Exception):  # noqa: N818 (a request to end, not an error)
    """Raised by waits of the main thread when the agent must end."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(ending.message)
        self.ending = ending


class EndRequests:
    """Collects requests to end, from signals and side threads; the main thread checks them whenever it waits."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._ending: Optional[Ending] = None
        self._newest_attempt = 0
        self.ended_at: Optional[float] = None

    def end(self, kind: EndingKind, message: str) -> None:
        """Tell the agent to end; the first reason wins."""
        with self._lock:
            if self._ending is None:
                self._ending, self.ended_at = Ending(kind, message), self._clock.monotonic()
        self._wake.set()

    def saw_attempt(self, number: int) -> None:
        """Record that the gang has a later attempt."""
        with self._lock:
            self._newest_attempt = max(self._newest_attempt, number)
        self._wake.set()

    def overtaken(self, attempt: int) -> bool:
        """Return whether an attempt later than this one is known."""
        with self._lock:
            return self._newest_attempt > attempt

    def ended(self) -> bool:
        """Return whether the agent must end."""
        return self._ending is not None

    def check(self) -> None:
        """Raise AgentMustEnd if the agent must end."""
        if self._ending is not None:
            raise AgentMustEnd(self._ending)

    def wait(self, seconds: float) -> None:
        """Wait for *seconds* or until a request arrives. Raise AgentMustEnd."""
        self.check()
        self._clock.wait(seconds, self._wake)
        # A request between `wait` and `clear` is not lost, since `check` runs after both.
        self._wake.clear()
        self.check()


def obey_signals(actions: Mapping[signal.Signals, Callable[[], None]]) -> None:
    """
    Run an action in a thread of its own whenever its signal arrives.

    A Python signal handler interrupts the main thread anywhere, also while it holds a lock that the action
    needs. So the handlers do nothing, and the signal's number arrives through the wake-up descriptor.
    """
    reader, writer = socket.socketpair()
    # Required by set_wakeup_fd, so that a full buffer cannot block a signal handler.
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
            writer.fileno()  # Keeps the socket open for as long as this thread lives.

    threading.Thread(target=listen, name="signals", daemon=True).start()
