"""A port of this computer that leads to a port of a machine, over whichever SSH connection stands at the time."""

import contextlib
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.errors import RemoteError, UsageError

if TYPE_CHECKING:
    import paramiko

    from orchestrator.ssh.connection import Connection

HERE = "127.0.0.1"
_CHUNK = 64 * 1024


@dataclass(frozen=True)
class ForwardTarget:
    """Say where connections go: over *connection* to *address* and *port* as the machine sees them."""

    connection: "Connection"
    address: str
    port: int

    def listens(self) -> bool:
        """Say whether something takes connections there."""
        try:
            self.connection.dial(self.address, self.port, (HERE, 0)).close()
        except RemoteError:
            return False
        return True

    def answers(self, path: str) -> int:
        """Ask for *path* by HTTP and return the status, 0 when nobody answers so."""
        with contextlib.suppress(RemoteError, OSError, EOFError, ValueError, IndexError):
            channel = self.connection.dial(self.address, self.port, (HERE, 0))
            with contextlib.closing(channel):
                channel.settimeout(10.0)
                channel.sendall(f"GET {path} HTTP/1.0\r\nHost: {HERE}\r\n\r\n".encode())
                return int(channel.recv(_CHUNK).split()[1])
        return 0


def free_port(wanted: int) -> int:
    """Return *wanted* when nobody uses that port of this computer, else 0: the system then chooses one."""
    with contextlib.closing(socket.socket()) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HERE, wanted))
        except OSError:
            return 0
    return wanted


def port_here(asked: int | None, there: int, *, shared: bool) -> int:
    """
    Return the port of this computer for a tunnel to port *there* of a machine, 0 when the system may choose.

    *shared* says that programs of the machine see this computer's 127.0.0.1, as on the local cloud. A tunnel
    that listened on their number would keep them from starting: TensorBoard looks there before it binds.
    Raise UsageError when *asked* is such a number.
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
    Listen on the loopback address of this computer; *port* 0 lets the system choose one.

    The port stays the same while machines come and go: connections that come without a connection are closed.
    *refused* is set when nobody has answered one at the other end.
    Raise UsageError when the port is taken.
    """

    def __init__(self, port: int) -> None:
        self._target: ForwardTarget | None = None
        self.refused = threading.Event()
        self._listener = socket.socket()
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
        """Send connections to *target* from now on, nowhere when None."""
        self._target = target
        self.refused.clear()

    def close(self) -> None:
        """Stop listening."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, peer = self._listener.accept()
                threading.Thread(target=self._carry, args=(client, peer), daemon=True).start()

    def _carry(self, client: socket.socket, peer: tuple[str, int]) -> None:
        """Copy both ways until both sides have said all."""
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
    """Copy until *source* ends, then tell *sink* so."""
    try:
        while data := source.recv(_CHUNK):
            sink.sendall(data)
    except (OSError, EOFError):
        # One side is gone: the other one need not say more.
        with contextlib.suppress(OSError, EOFError):
            source.shutdown(socket.SHUT_RD)
    with contextlib.suppress(OSError, EOFError):
        sink.shutdown(socket.SHUT_WR)
