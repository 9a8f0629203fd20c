"""Connect an SSH client of this computer to a machine through standard input and output (ProxyCommand)."""

import contextlib
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

from orchestrator.domain.remote import Host
from orchestrator.errors import RemoteError
from orchestrator.ssh.connect.jumps import Jump
from orchestrator.ssh.connect.route import Route, connect_timeout
from orchestrator.ssh.connect.ssh_settings import SshSettings

_CHUNK = 64 * 1024


class ServerLine:
    """
    A raw connection to the SSH server of *host*; the client's own encryption runs over it.

    *connect* returns a connection to a jump host, not opened yet.
    """

    def __init__(self, host: Host, settings: SshSettings, connect: Callable[[Host], Jump]) -> None:
        self._host = host
        self._timeout = connect_timeout(host, settings.connect)
        self._route = Route(host, settings, connect)
        self._sock: Any = None
        self._greeting = b""

    def open(self) -> None:
        """Connect, and wait for the first bytes of the server. Raise RemoteError."""
        host = self._host
        try:
            self._sock = self._route.open(self._timeout) or socket.create_connection(
                (host.address, host.port), self._timeout
            )
            self._sock.settimeout(self._timeout)
            # An SSH server sends its version first. An empty answer means that it boots or has too many clients.
            self._greeting = self._sock.recv(_CHUNK)
        except (OSError, EOFError) as error:
            failed = self._error(getattr(error, "strerror", "") or "no answer (it may still be booting)")
            self.close()
            raise failed from error
        if not self._greeting:
            failed = self._error("it closed the connection at once (it may still be booting)")
            self.close()
            raise failed

    def carry(self, source: int, sink: int) -> None:
        """Copy between the file descriptors and the machine until one side ends."""
        sock, over = self._sock, threading.Event()
        sock.settimeout(None)

        def outward() -> None:
            # The machine may have closed only its input: `inward` still delivers its output.
            with contextlib.suppress(OSError, EOFError):
                while data := os.read(source, _CHUNK):
                    while data:
                        data = data[sock.send(data) :]
                over.set()

        def inward() -> None:
            data = self._greeting
            with contextlib.suppress(OSError, EOFError):
                while data:
                    while data:
                        data = data[os.write(sink, data) :]
                    data = sock.recv(_CHUNK)
            over.set()

        for work in (outward, inward):
            threading.Thread(target=work, daemon=True).start()
        over.wait()

    def close(self) -> None:
        """Close the connection and release its route."""
        sock, self._sock = self._sock, None
        if sock is not None:
            with contextlib.suppress(OSError, EOFError):
                sock.close()
        self._route.close()

    def _error(self, what: str) -> RemoteError:
        host, (said, hint) = self._host, self._route.refusal()
        where = f"{host.name} ({host.address} port {host.port}){self._route.words}"
        return RemoteError(f"SSH to {where}: {said or what}", hint=hint or "see: tpuctl status")


def hung_up(descriptor: int) -> bool:
    """Return whether the other end of this descriptor is closed."""
    watch = select.poll()
    watch.register(descriptor, 0)
    return any(event & (select.POLLHUP | select.POLLERR) for _, event in watch.poll(0))
