"""What an SSH connection runs over: TCP from here, another machine's SSH connection, or gcloud."""

import contextlib
import socket
from collections.abc import Callable
from typing import Any

from orchestrator.domain.ports import Host
from orchestrator.errors import RemoteError
from orchestrator.ssh import iap
from orchestrator.ssh.jumps import Jump
from orchestrator.ssh.ssh_settings import SshSettings


def patience(host: Host, connect: float) -> float:
    """Return the seconds in which a connection to *host* must stand, given those for one connection."""
    own = connect + (iap.START_SECONDS if host.iap else 0.0)
    return own + (patience(host.via, connect) if host.via else 0.0)


class Route:
    """
    The way to one machine. `close` gives back what `open` has taken; both may be called again.

    *connect* makes a connection to a jump host, which is not open yet.
    """

    def __init__(self, host: Host, settings: SshSettings, connect: Callable[[Host], Jump]) -> None:
        self._host = host
        self._settings = settings
        self._connect = connect
        self._jump: Jump | None = None
        self._sock: Any = None

    def open(self, seconds: float) -> Any:
        """Return what the connection is to run over, None for plain TCP. Raise OSError and RemoteError."""
        self.close()
        host, settings = self._host, self._settings
        if host.iap is not None:
            self._sock = iap.IapPipe(host.iap, host.port, settings.key.parent / "gcloud")
        elif host.via is not None:
            self._jump = settings.jumps.take(host.via, self._connect)
            self._sock = self._through(self._jump)
        elif settings.source:
            self._sock = socket.create_connection(
                (host.address, host.port), seconds, source_address=(settings.source, 0)
            )
        return self._sock

    def close(self) -> None:
        """Close what was opened; a jump that others use stays open."""
        sock, self._sock = self._sock, None
        jump, self._jump = self._jump, None
        if sock is not None:
            with contextlib.suppress(OSError, EOFError):
                sock.close()
        if jump is not None:
            self._settings.jumps.give(jump)

    @property
    def words(self) -> str:
        """Name the route in a message; the direct one needs no name."""
        if self._host.iap is not None:
            return " through Identity-Aware Proxy"
        return f" through {self._host.via.name}" if self._host.via is not None else ""

    def fault(self) -> tuple[str, str]:
        """Return what went wrong on the route and what to do about it; both are empty where that is not known."""
        return self._sock.fault() if isinstance(self._sock, iap.IapPipe) else ("", "")

    def _through(self, jump: Jump) -> Any:
        try:
            return jump.dial(self._host.address, self._host.port, ("127.0.0.1", 0))
        except RemoteError as error:
            # A jump host that still answers has refused this one connection; otherwise it is the one that is lost.
            if not jump.alive:
                raise
            raise RemoteError(
                f"SSH to {self._host.name} ({self._host.address} port {self._host.port}) through "
                f"{jump.host.name}: {jump.host.name} cannot connect to it (it may still be booting)",
                hint=error.hint,
            ) from error
