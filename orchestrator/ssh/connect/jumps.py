"""Share one connection to each jump host among all threads."""

import threading
from collections.abc import Callable
from typing import Any, Protocol

from orchestrator.domain.remote import Host

IDLE_SECONDS = 30.0
"""Seconds that an unused connection to a jump host stays open; one pass connects several times."""


class Jump(Protocol):
    """An SSH connection that can open TCP connections from the machine."""

    host: Host

    @property
    def alive(self) -> bool:
        """Return whether the connection is open."""

    def dial(self, address: str, port: int, peer: tuple[str, int]) -> Any:
        """Open a TCP connection from the machine to *address*. Raise RemoteError."""

    def open(self) -> None:
        """Connect and log in. Raise HostKeyError and RemoteError."""

    def shut(self) -> None:
        """Close the connection and its own route."""


class Jumps:
    """Share connections to jump hosts; safe to use from threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[Host, Jump] = {}
        self._users: dict[Jump, int] = {}
        self._timers: dict[Jump, threading.Timer] = {}

    def take(self, host: Host, connect: Callable[[Host], Jump]) -> Jump:
        """Return an open connection to *host*, an existing one if possible. Raise RemoteError and HostKeyError."""
        # The lock is held while connecting, so that 16 workers behind one VM log in to it once, not 16 times.
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
        """Give a connection back; after the last user it closes in IDLE_SECONDS, or at once if it is broken."""
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
            # `take` may run while this timer waits for the lock. It has then removed the timer, which
            # must not close.
            if self._timers.get(jump) is threading.current_thread():
                self._drop(jump)

    def _drop(self, jump: Jump) -> None:
        self._timers.pop(jump, None)
        self._users.pop(jump, None)
        # A broken connection may already have been replaced; keep the new one.
        if self._connections.get(jump.host) is jump:
            del self._connections[jump.host]
        jump.shut()
