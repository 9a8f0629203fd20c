"""One connection to each machine that others are reached through, for all who need it."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from orchestrator.domain.ports import Host

IDLE_SECONDS = 30.0
"""Seconds for which an unused connection to a jump host stays open: a pass has several steps."""


class Jump(Protocol):
    """An SSH connection that can open TCP connections on the machine's side."""

    host: Host

    @property
    def alive(self) -> bool:
        """Say whether the connection still stands."""

    def dial(self, address: str, port: int, peer: tuple[str, int]) -> Any:
        """Connect to an address as the machine sees it. Raise RemoteError."""

    def open(self) -> None:
        """Connect and log in. Raise HostKeyError and RemoteError."""

    def shut(self) -> None:
        """Close the connection and all that it runs over."""


class Jumps:
    """Share connections to jump hosts; safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[Host, Jump] = {}
        self._users: dict[Jump, int] = {}
        self._timers: dict[Jump, threading.Timer] = {}

    def take(self, host: Host, connect: Callable[[Host], Jump]) -> Jump:
        """Return an open connection to *host*: the one that stands, else a new one. Raise RemoteError."""
        # Connecting under the lock is meant: 16 workers behind one VM must not log in to it 16 times.
        with self._lock:
            jump = self._connections.get(host)
            if jump is None or not jump.alive:
                jump = connect(host)
                jump.open()
                self._connections[host] = jump
            if (timer := self._timers.pop(jump, None)) is not None:
                timer.cancel()
            self._users[jump] = self._users.get(jump, 0) + 1
            return jump

    def give(self, jump: Jump) -> None:
        """Give a connection back; it is closed when nobody takes it for a while, at once when it is broken."""
        with self._lock:
            self._users[jump] -= 1
            if self._users[jump] > 0:
                return
            if not jump.alive:
                self._drop(jump)
                return
            timer = threading.Timer(IDLE_SECONDS, self._expire, (jump,))
            timer.daemon = True
            self._timers[jump] = timer
            timer.start()

    def _expire(self, jump: Jump) -> None:
        with self._lock:
            # A timer that fires while somebody takes the connection is cancelled too late: it is no longer listed.
            if self._timers.get(jump) is threading.current_thread():
                self._drop(jump)

    def _drop(self, jump: Jump) -> None:
        self._timers.pop(jump, None)
        self._users.pop(jump, None)
        # A broken connection may have been replaced meanwhile: the new one stays.
        if self._connections.get(jump.host) is jump:
            del self._connections[jump.host]
        jump.shut()
