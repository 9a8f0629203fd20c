"""What an SSH connection runs over: TCP from here, another machine's SSH connection, or gcloud."""

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Any

from orchestrator.domain.ports import Host
from orchestrator.errors import RemoteError
from orchestrator.ssh import iap

if TYPE_CHECKING:
    from orchestrator.ssh.connection import Connection
    from orchestrator.ssh.limits import SshSettings

IDLE_SECONDS = 30.0
"""Seconds for which an unused connection to a machine on the way stands: a pass has several steps."""


def patience(host: Host, connect: float) -> float:
    """Return the seconds in which a connection to *host* must stand, given those for one connection."""
    own = connect + (iap.START_SECONDS if host.iap else 0.0)
    return own + (patience(host.via, connect) if host.via else 0.0)


class Route:
    """Lead to one machine. `close` gives back what `open` has taken; both may be called again."""

    def __init__(self, host: Host, settings: "SshSettings") -> None:
        self._host = host
        self._settings = settings
        self._jump: Connection | None = None
        self._sock: Any = None

    def open(self, seconds: float) -> Any:
        """Return what the connection is to run over, None for plain TCP. Raise OSError and RemoteError."""
        self.close()
        host, settings = self._host, self._settings
        if host.iap is not None:
            self._sock = iap.IapPipe(host.iap, host.port, settings.key.parent / "gcloud")
        elif host.via is not None:
            self._jump = settings.jumps.take(host.via, settings)
            self._sock = self._through(self._jump, host.via)
        elif settings.source:
            self._sock = socket.create_connection(
                (host.address, host.port), seconds, source_address=(settings.source, 0)
            )
        return self._sock

    def close(self) -> None:
        """Close what was opened; a jump that others use stays."""
        sock, self._sock = self._sock, None
        jump, self._jump = self._jump, None
        if sock is not None:
            with contextlib.suppress(OSError, EOFError):
                sock.close()
        if jump is not None:
            self._settings.jumps.give(jump)

    @property
    def words(self) -> str:
        """Say in a message which way this is, nothing for the straight one."""
        if self._host.iap is not None:
            return " through Identity-Aware Proxy"
        return f" through {self._host.via.name}" if self._host.via is not None else ""

    def fault(self) -> tuple[str, str]:
        """Return what went wrong on the way and what to do about it, nothing where that is not known."""
        return self._sock.fault() if isinstance(self._sock, iap.IapPipe) else ("", "")

    def _through(self, jump: "Connection", machine: Host) -> Any:
        try:
            return jump.dial(self._host.address, self._host.port, ("127.0.0.1", 0))
        except RemoteError as error:
            if not jump.alive:
                raise
            raise RemoteError(
                f"SSH to {self._host.name} ({self._host.address} port {self._host.port}) through "
                f"{machine.name}: {machine.name} cannot connect to it (it may still be booting)",
                hint=error.hint,
            ) from error


class Jumps:
    """Keep one connection to each machine that others are reached through, for all who need it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: dict[Host, Connection] = {}
        self._users: dict[Connection, int] = {}
        self._timers: dict[Connection, threading.Timer] = {}

    def take(self, host: Host, settings: "SshSettings") -> "Connection":
        """Return an open connection to *host*: the one that stands, else a new one. Raise RemoteError."""
        from orchestrator.ssh.connection import Connection

        with self._lock:
            connection = self._connections.get(host)
            if connection is None or not connection.alive:
                connection = Connection(host, settings, None)
                connection.__enter__()
                self._connections[host] = connection
            if (timer := self._timers.pop(connection, None)) is not None:
                timer.cancel()
            self._users[connection] = self._users.get(connection, 0) + 1
            return connection

    def give(self, connection: "Connection") -> None:
        """Give a connection back; it is closed when nobody takes it for a while, at once when it is broken."""
        with self._lock:
            self._users[connection] -= 1
            if self._users[connection] > 0:
                return
            if not connection.alive:
                self._drop(connection)
                return
            timer = threading.Timer(IDLE_SECONDS, self._expire, (connection,))
            timer.daemon = True
            self._timers[connection] = timer
            timer.start()

    def _expire(self, connection: "Connection") -> None:
        with self._lock:
            if self._timers.get(connection) is threading.current_thread():
                self._drop(connection)

    def _drop(self, connection: "Connection") -> None:
        self._timers.pop(connection, None)
        self._users.pop(connection, None)
        if self._connections.get(connection.host) is connection:
            del self._connections[connection.host]
        connection.__exit__(None, None, None)
