"""One SSH connection: pinned host key, only the deployment's key, no ssh_config or agent, bounded in time."""

import contextlib
import logging
import socket
import threading
from types import TracebackType
from typing import Any

import fabric
import paramiko

from orchestrator.domain.remote import Host
from orchestrator.errors import RemoteError, TpuctlError
from orchestrator.ssh.connect.bounded_transport import FloodError, open_transport
from orchestrator.ssh.connect.pinned_keys import pinned, refusal
from orchestrator.ssh.connect.route import Route, connect_timeout
from orchestrator.ssh.connect.ssh_settings import SshSettings
from orchestrator.ssh.connect.watchdog import Watchdog

# paramiko logs what we report as an error anyway.
logging.getLogger("paramiko").addHandler(logging.NullHandler())


class Connection:
    """
    A connection to *host* for one `with` block.

    A watchdog closes it after *timeout* seconds (None: no timeout), or when the machine has not answered for
    `settings.stall` seconds; within that time three keepalive requests are sent. Raise HostKeyError for a
    wrong key and RemoteError for every other failure.
    """

    def __init__(self, host: Host, settings: SshSettings, timeout: float | None) -> None:
        self.host = host
        self.settings = settings
        self._timeout = timeout
        self._cancelled = False
        self._connection: Any = None
        self._watchdog: Watchdog | None = None
        self._route = Route(host, settings, lambda via: Connection(via, settings, None))

    def __enter__(self) -> "Connection":  # noqa: PYI034 - Self needs Python 3.11
        self.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shut()

    def open(self) -> None:
        """Connect and log in. Raise HostKeyError and RemoteError."""
        timeout = connect_timeout(self.host, self.settings.connect)
        self._watch(timeout if self._timeout is None else min(timeout, self._timeout), timeout)
        self._log_in()
        self._watch(self._timeout, self.settings.stall)
        threading.Thread(target=self._ping, args=(self._watchdog,), name="ssh-ping", daemon=True).start()

    def shut(self) -> None:
        """Close the connection and release its route."""
        if self._watchdog is not None:
            self._watchdog.stop()
        self.close()
        self._route.close()

    def touch(self) -> None:
        """Reset the stall timer after data was sent or received."""
        if self._watchdog is not None:
            self._watchdog.touch()

    def execute(self, command: str, terminal: tuple[str, int, int] | None = None) -> paramiko.Channel:
        """
        Start a command (a login shell when empty) and return its channel.

        *terminal* is (type, columns, rows) of the terminal to ask for. Raise RemoteError.
        """
        try:
            channel: paramiko.Channel = self._transport().open_session(timeout=self.settings.stall)
            if terminal is not None:
                channel.get_pty(*terminal)
            if command:
                channel.exec_command(command)
            else:
                channel.invoke_shell()
        except Exception as error:  # paramiko raises its own, socket and EOF errors here
            raise self.error_of(error) from error
        return channel

    def dial(self, address: str, port: int, peer: tuple[str, int]) -> paramiko.Channel:
        """
        Open a TCP connection from the machine to *address*; *peer* is the originator to report (RFC 4254 7.2).

        Raise RemoteError if nothing listens there or the SSH connection is lost.
        """
        try:
            channel: paramiko.Channel = self._transport().open_channel(
                "direct-tcpip", (address, port), peer, timeout=self.settings.connect
            )
        except Exception as error:  # paramiko raises its own, socket and EOF errors here
            raise self.error_of(error) from error
        return channel

    @property
    def alive(self) -> bool:
        """Return whether the connection is open and logged in."""
        try:
            return self._transport().is_active()
        except EOFError:
            return False

    def error_of(self, error: BaseException | None = None) -> RemoteError:
        """Return the error for a failed connection; the watchdog's reason has priority over *error*."""
        said, hint = self._route.refusal()
        what = self._reason() or said or self._flood() or _describe(error)
        return RemoteError(
            f"SSH to {self.host.name} ({self.host.address} port {self.host.port}){self._route.words}: {what}",
            hint=hint or "run the command again; `tpuctl status` shows whether the machine is still there",
        )

    def cancel(self) -> None:
        """Close the connection, also while it is being opened."""
        self._cancelled = True
        self.close()

    def close(self) -> None:
        """Close the connection at once; safe to call from any thread."""
        connection = self._connection
        transport = connection.client.get_transport() if connection is not None else None
        if transport is not None:
            # Closing alone does not wake threads that wait in a read of this socket: shutting it down does.
            with contextlib.suppress(OSError):
                transport.sock.shutdown(socket.SHUT_RDWR)
        if connection is not None:
            # A half-closed connection raises errors of many types, and none of them matters any more.
            with contextlib.suppress(Exception):
                connection.client.close()

    def _log_in(self) -> None:
        """Connect and log in; retry once if the connection breaks before the login."""
        error = self._attempt()
        # No command has run yet, so a retry is safe; sshd drops connections beyond MaxStartups.
        if error is not None and _may_repeat(error) and not self._reason():
            self.close()
            error = self._attempt()
        if error is not None:
            failed = self._translate(error)
            self.shut()
            raise failed from error

    def _attempt(self) -> Exception | None:
        """Connect once; return the error, or None."""
        try:
            self._connect()
        except Exception as error:  # paramiko raises its own, socket and EOF errors here
            return error
        return None

    def _translate(self, error: Exception) -> Exception:
        if isinstance(error, TpuctlError):
            return error
        if isinstance(error, paramiko.BadHostKeyException):
            return refusal(self.host, error.key, pinned(self.host, self.settings.known_hosts))
        return self.error_of(error)

    def _reason(self) -> str:
        return self._watchdog.message if self._watchdog is not None else ""

    def _flood(self) -> str:
        """Return the reason if the connection was closed for a flood of data, else ""."""
        client = self._connection.client if self._connection is not None else None
        transport = client.get_transport() if client is not None else None
        met = getattr(transport, "saved_exception", None)
        return str(met) if isinstance(met, FloodError) else ""

    def _remaining(self) -> float:
        """Return the seconds left to connect and log in, shared by all attempts."""
        remaining = self._watchdog.remaining() if self._watchdog is not None else None
        return connect_timeout(self.host, self.settings.connect) if remaining is None else max(0.1, remaining)

    def _connect(self) -> None:
        """Open fabric's connection with our key, our host keys and nothing of the user's set-up."""
        # Host keys first: a machine without pinned keys is not even contacted.
        keys = pinned(self.host, self.settings.known_hosts, self.settings.warn)
        sock = self._route.open(self._remaining())
        timeout = self._remaining()
        self._connection = fabric.Connection(
            self.host.address,
            user=self.settings.user,
            port=self.host.port,
            # An empty config: the user's ~/.ssh/config may set proxies, agents and other keys for this address.
            config=fabric.Config(lazy=True, ssh_config=paramiko.SSHConfig()),
            forward_agent=False,
            connect_kwargs={
                "pkey": paramiko.Ed25519Key.from_private_key_file(str(self.settings.key)),
                "look_for_keys": False,
                "allow_agent": False,
                "timeout": timeout,
                "banner_timeout": timeout,
                "auth_timeout": timeout,
                "channel_timeout": self.settings.stall,
                "transport_factory": open_transport,
                **({"sock": sock} if sock is not None else {}),
            },
        )
        client = self._connection.client
        client.set_missing_host_key_policy(paramiko.RejectPolicy())
        for key in keys:
            client.get_host_keys().add(_entry(self.host), key.get_name(), key)
        self._connection.open()
        # `cancel` may have run before there was a connection to close.
        if self._cancelled:
            raise RemoteError("interrupted")

    def _transport(self) -> paramiko.Transport:
        transport: paramiko.Transport | None = self._connection.client.get_transport()
        if transport is None:
            raise EOFError
        return transport

    def _watch(self, timeout: float | None, stall: float) -> None:
        if self._watchdog is not None:
            self._watchdog.stop()
        self._watchdog = Watchdog(self.close, timeout, stall)

    def _ping(self, watchdog: Watchdog) -> None:
        """Send keepalive requests that need an answer: a write to a dead connection succeeds."""
        while not watchdog.wait(self.settings.stall / 3):
            try:
                transport = self._transport()
                transport.global_request("keepalive@openssh.com", wait=True)
            # The thread that uses the connection raises the error.
            except Exception:  # Lost, or being closed: paramiko may raise anything then.
                return
            if not transport.is_active():
                return
            watchdog.touch()


def _entry(host: Host) -> str:
    """Return the name under which paramiko looks up the host key."""
    return host.address if host.port == 22 else f"[{host.address}]:{host.port}"


def _may_repeat(error: BaseException) -> bool:
    """Return whether the connection broke before the login was answered; a refused key is not retried."""
    if isinstance(error, paramiko.AuthenticationException | paramiko.ssh_exception.NoValidConnectionsError):
        return False
    return isinstance(error, paramiko.SSHException | EOFError | ConnectionResetError | BrokenPipeError)


def _describe(error: BaseException | None) -> str:
    """Return a message for an exception of paramiko or the socket."""
    if isinstance(error, paramiko.AuthenticationException):
        return "the machine refused the SSH key (it may still be booting)"
    if isinstance(error, paramiko.ssh_exception.NoValidConnectionsError | ConnectionRefusedError):
        return "connection refused (the machine may still be booting)"
    if isinstance(error, TimeoutError):
        return "no answer (the machine may still be booting, or its address is wrong)"
    if isinstance(error, EOFError | ConnectionResetError) or error is None or not str(error):
        return "the connection was lost"
    return str(error)
