"""Open what an SSH connection runs over: TCP, a channel of a jump host, or gcloud for IAP."""

import contextlib
import socket
from collections.abc import Callable
from typing import Any

from orchestrator.domain.remote import Host
from orchestrator.errors import RemoteError
from orchestrator.ssh.connect import iap
from orchestrator.ssh.connect.jumps import Jump
from orchestrator.ssh.connect.ssh_settings import SshSettings


def connect_timeout(host: Host, connect: float) -> float:
    """Return the timeout in seconds for a connection to *host*, given *connect*, that of one hop."""
    own = connect + (iap.START_TIMEOUT if host.iap else 0.0)
    return own + (connect_timeout(host.via, connect) if host.via else 0.0)


class Route:
    """
    The route to one machine. `open` and `close` may be called repeatedly.

    *connect* returns a connection to a jump host, not opened yet.
    """

    def __init__(self, host: Host, settings: SshSettings, connect: Callable[[Host], Jump]) -> None:
        self._host = host
        self._settings = settings
        self._connect = connect
        self._jump: Jump | None = None
        self._sock: Any = None

    def open(self, timeout: float) -> Any:
        """Return the socket-like object for the connection, None for plain TCP. Raise OSError and RemoteError."""
        self.close()
        host, settings = self._host, self._settings
        if host.iap is not None:
            self._sock = iap.IapPipe(host.iap, host.port, settings.key.parent / "gcloud")
        elif host.via is not None:
            self._jump = settings.jumps.take(host.via, self._connect)
            self._sock = self._through(self._jump)
        elif settings.source:
            self._sock = socket.create_connection(
                (host.address, host.port), timeout, source_address=(settings.source, 0)
            )
        return self._sock

    def close(self) -> None:
        """Close what `open` opened; a shared jump host stays connected."""
        sock, self._sock = self._sock, None
        jump, self._jump = self._jump, None
        if sock is not None:
            with contextlib.suppress(OSError, EOFError):
                sock.close()
        if jump is not None:
            self._settings.jumps.give(jump)

    @property
    def words(self) -> str:
        """The route as part of a message; "" for the direct one."""
        if self._host.iap is not None:
            return " through Identity-Aware Proxy"
        return f" through {self._host.via.name}" if self._host.via is not None else ""

    def refusal(self) -> tuple[str, str]:
        """Return what failed on the route and a hint; both "" if unknown."""
        return self._sock.refusal() if isinstance(self._sock, iap.IapPipe) else ("", "")

    def _through(self, jump: Jump) -> Any:
        try:
            return jump.dial(self._host.address, self._host.port, ("127.0.0.1", 0))
        except RemoteError as error:
            # If the jump host is alive, it refused this connection; otherwise the jump host itself is lost.
            if not jump.alive:
                raise
            raise RemoteError(
                f"SSH to {self._host.name} ({self._host.address} port {self._host.port}) through "
                f"{jump.host.name}: {jump.host.name} cannot connect to it (it may still be booting)",
                hint=error.hint,
            ) from error
