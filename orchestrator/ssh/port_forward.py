"""Forward a local port to a port of a machine, over the current SSH connection."""

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import RemoteError, UsageError

if TYPE_CHECKING:
    import paramiko

    from orchestrator.ssh.connect.connection import Connection

HERE = "127.0.0.1"
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class ForwardTarget:
    """The target of forwarded connections: *address* and *port* as seen from the machine of *connection*."""

    connection: "Connection"
    address: str
    port: int

    def listens(self) -> bool:
        """Return whether something listens there."""
        try:
            self.connection.dial(self.address, self.port, (HERE, 0)).close()
        except RemoteError:
            return False
        return True

    def answers(self, path: str) -> int:
        """Send an HTTP GET for *path*; return the status, 0 if there is no HTTP answer within 10 s."""
        with contextlib.suppress(RemoteError, OSError, EOFError, ValueError, IndexError):
            channel = self.connection.dial(self.address, self.port, (HERE, 0))
            with contextlib.closing(channel):
                channel.settimeout(10.0)
                channel.sendall(f"GET {path} HTTP/1.0\r\nHost: {HERE}\r\n\r\n".encode())
                return int(channel.recv(_CHUNK).split()[1])
        return 0


def free_port(wanted: int) -> int:
    """Return *wanted* if that local port is free, else 0, with which the system chooses one."""
    with contextlib.closing(socket.socket()) as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind((HERE, wanted))
        except OSError:
            return 0
    return wanted


def port_here(asked: int | None, there: int, *, shared: bool) -> int:
    """
    Return the local port for a tunnel to port *there* of a machine, 0 if the system may choose.

    *shared* means that programs of the machine share this computer's 127.0.0.1, as on the local cloud. There
    a tunnel on the same number would keep the service from starting: TensorBoard checks the port before it
    binds. Raise UsageError if *asked* is that number.
    """
    if shared and asked == there:
        raise UsageError(
            f"port {asked} of this computer cannot be used: the service has the same number on a machine "
            "that shares this computer's network",
            hint="choose another one with --port, or leave it out",
            changed="nothing was changed",
            code="TPU-135",
        )
    if asked is not None:
        return asked
    return 0 if shared else free_port(there)


class Tunnel:
    """
    A listener on this computer's loopback address; *port* 0 lets the system choose.

    The port stays the same while machines are replaced; while there is no target, new connections are closed.
    *refused* is set when a connection found nothing listening on the machine. Raise UsageError if the port is
    in use.
    """

    def __init__(self, port: int) -> None:
        self._target: ForwardTarget | None = None
        self.refused = threading.Event()
        self._listener = socket.socket()
        # The port of a tunnel that has just ended is in TIME_WAIT.
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((HERE, port))
        except (OSError, OverflowError) as error:
            self._listener.close()
            raise UsageError(
                f"port {port} of this computer cannot be used: {error}",
                hint="choose another one with --port",
                changed="nothing was changed",
                code="TPU-135",
            ) from error
        self._listener.listen(64)
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, name="tunnel", daemon=True).start()

    def lead(self, target: ForwardTarget | None) -> None:
        """Forward new connections to *target*; None closes them."""
        self._target = target
        self.refused.clear()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            # Wakes the thread in `accept`, which closing alone does not.
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, peer = self._listener.accept()
                threading.Thread(target=self._carry, args=(client, peer), daemon=True).start()

    def _carry(self, client: socket.socket, peer: tuple[str, int]) -> None:
        """Copy in both directions until both sides have ended."""
        # Read once, because `lead` may change it while this connection lasts.
        target = self._target
        with contextlib.closing(client):
            if target is None:
                return
            try:
                channel = target.connection.dial(target.address, target.port, peer)
            except RemoteError:
                self.refused.set()
                return
            with contextlib.closing(channel):
                back = threading.Thread(target=_copy, args=(channel, client), daemon=True)
                back.start()
                _copy(client, channel)
                back.join()


def _copy(source: "socket.socket | paramiko.Channel", sink: "socket.socket | paramiko.Channel") -> None:
    """Copy until *source* ends, then shut down writing on *sink*."""
    try:
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    except (OSError, EOFError):
        # One side has closed the connection, so a failed write to it is no error.
        with contextlib.suppress(OSError, EOFError):
            source.shutdown(socket.SHUT_RD)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(socket.SHUT_WR)
