"""
Serve SSH on a `process` machine: listed keys only, bash, PTY, SFTP and tunnels.

Connections of other users of the computer are closed before any data is sent; on a machine without external
address, so are those from outside its cloud. Machines share the computer's network, so forwarded connections
use the machine's address as their source.
"""

import asyncio
import os
import pty
import signal
import struct
import termios
from asyncio.subprocess import PIPE, Process
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.forward import SSHForwarder

from orchestrator.emulator.machines.accounts import Accounts
from orchestrator.emulator.machines.environment import user_environment
from orchestrator.emulator.machines.machine_settings import STANDARD_PORT, GuestConfig
from orchestrator.emulator.machines.socket_owner import listening

SHELL = "/bin/bash"
# Copied here instead of by asyncssh's redirection, which loses the end of a large input if the end of file
# arrives while its pipe is being refilled (seen with 2.24 on Python 3.11).
CHUNK = 64 * 1024
END_OF_FILE = b"\x04"  # Ctrl-D, which a terminal reads as the end of input


class SshServer:
    """The logins of one machine; `accounts` may be replaced while it runs."""

    def __init__(self, config: GuestConfig) -> None:
        self._config = config
        self._listeners: list[asyncssh.SSHAcceptor] = []
        self.accounts: Accounts = {}

    async def start(self, host_key: Path) -> None:
        """
        Listen on the machine's address. Raise OSError if the port is taken.

        Port 22, the only one that gcloud knows, may need privileges; it is opened in addition if possible.
        """
        await self._listen(self._config.ssh_port, host_key)
        if self._config.ssh_port != STANDARD_PORT:
            with suppress(OSError):
                await self._listen(STANDARD_PORT, host_key)

    async def _listen(self, port: int, host_key: Path) -> None:
        listener = await asyncssh.listen(
            sock=listening(self._config.address, port),
            server_factory=lambda: _Login(self),
            server_host_keys=[str(host_key)],
            process_factory=self._session,
            sftp_factory=self._sftp,
            allow_scp=True,
            encoding=None,
            line_editor=False,
            agent_forwarding=False,
        )
        self._listeners.append(listener)

    async def stop(self) -> None:
        for listener in self._listeners:
            listener.close()

    def environment(self, user: str) -> dict[str, str]:
        """Return the environment of a login, and create the home folder."""
        home = self._config.home(user)
        home.mkdir(parents=True, exist_ok=True)
        return user_environment(self._config.environment, user, home, SHELL)

    def admits(self, user: str, key: asyncssh.SSHKey) -> bool:
        return any(_same(text, key) for text in self.accounts.get(user, ()))

    def lets_in(self, peer: str) -> bool:
        """Return whether a client with that address can reach this machine."""
        return not self._config.peers or IPv4Address(peer) in IPv4Network(self._config.peers)

    async def forward(self, host: str, port: int) -> Any:
        """Connect to a forwarding's target; return asyncssh's session. Raise ChannelOpenError."""
        loop = asyncio.get_running_loop()
        try:
            _, there = await loop.create_connection(
                SSHForwarder, host, port, local_addr=(self._config.address, 0)
            )
        except OSError as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
        return SSHForwarder(there)

    async def _session(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        """Run the command, or an interactive shell (a login shell would reset PATH)."""
        environment = self.environment(process.get_extra_info("username"))
        arguments = [SHELL, "-c", process.command] if process.command else [SHELL]
        await run_session(process, arguments, environment)

    def _sftp(self, channel: "asyncssh.SSHServerChannel[bytes]") -> asyncssh.SFTPServer:
        user = channel.get_connection().get_extra_info("username")
        return _Files(channel, Path(self.environment(user)["HOME"]))


class _Login(asyncssh.SSHServer):
    """Accepts the accounts' public keys and nothing else, and forwards any port."""

    def __init__(self, server: SshServer) -> None:
        self._server = server

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        if not self._server.lets_in(conn.get_extra_info("peername")[0]):
            conn.abort()

    def begin_auth(self, username: str) -> bool:
        return True

    def password_auth_supported(self) -> bool:
        return False

    def kbdint_auth_supported(self) -> bool:
        return False

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._server.admits(username, key)

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[Any]:
        return self._server.forward(dest_host, dest_port)


class _Files(asyncssh.SFTPServer):
    """Serves files; relative paths start at the user's home, absolute ones are the computer's."""

    def __init__(self, channel: "asyncssh.SSHServerChannel[bytes]", home: Path) -> None:
        super().__init__(channel)
        self._channel = channel
        self._home = os.fsencode(home)

    def exit(self) -> None:
        super().exit()
        # OpenSSH's scp treats a channel without an exit status as a failed copy.
        self._channel.exit(0)

    def map_path(self, path: bytes) -> bytes:
        return os.path.join(self._home, path)  # noqa: PTH118 - bytes, which Path refuses


def _same(text: str, key: asyncssh.SSHKey) -> bool:
    """Return whether a listed key equals the offered one; False for a line that is no key."""
    try:
        return asyncssh.import_public_key(text).public_data == key.public_data
    except (asyncssh.KeyImportError, ValueError):
        return False


@dataclass(frozen=True)
class _Child:
    """A running command and its stream ends; *terminal* is the leader's descriptor or -1."""

    process: Process
    stdin: asyncio.StreamWriter
    outputs: list[tuple[asyncio.StreamReader, "asyncssh.SSHWriter[bytes]"]]
    terminal: int = -1


class _TerminalProtocol(asyncio.StreamReaderProtocol):
    """
    Treats EIO, which a terminal returns after its last process has ended, as the end of its output.

    A StreamReader with an error raises it before returning its buffered bytes, which would be lost.
    """

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(None)


async def run_session(
    channel: "asyncssh.SSHServerProcess[bytes]", arguments: list[str], environment: dict[str, str]
) -> None:
    """Run the command; as with OpenSSH, the channel closes at the end of its output."""
    terminal = channel.get_terminal_type()
    if terminal:
        child = await _on_terminal(channel, arguments, {**environment, "TERM": terminal})
    else:
        child = await _on_pipes(channel, arguments, environment)
    feeding = asyncio.create_task(_feed(channel, child))
    await asyncio.gather(*(_copy(source, sink) for source, sink in child.outputs))
    status = await child.process.wait()
    # The command has ended, so its unread input is dropped.
    feeding.cancel()
    child.stdin.close()
    with suppress(OSError):
        channel.exit(status if status >= 0 else 128 - status)


async def _on_pipes(
    channel: "asyncssh.SSHServerProcess[bytes]", arguments: list[str], environment: dict[str, str]
) -> _Child:
    process = await asyncio.create_subprocess_exec(
        *arguments, env=environment, cwd=environment["HOME"], start_new_session=True,
        stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise OSError("the session's pipes were not made")
    return _Child(process, stdin, [(stdout, channel.stdout), (stderr, channel.stderr)])


async def _on_terminal(
    channel: "asyncssh.SSHServerProcess[bytes]", arguments: list[str], environment: dict[str, str]
) -> _Child:
    """Start the shell on its own terminal, which hangs up when the session ends."""
    leader, follower = pty.openpty()
    _resize(leader, channel.get_terminal_size())
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments, env=environment, cwd=environment["HOME"], start_new_session=True,
            # The terminal can be acquired only after setsid (start_new_session), and in the child.
            stdin=follower, stdout=follower, stderr=follower, preexec_fn=_take_terminal,
        )  # fmt: skip
    finally:
        os.close(follower)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    read_file, write_file = os.fdopen(os.dup(leader), "rb", 0), os.fdopen(leader, "wb", 0)
    await loop.connect_read_pipe(lambda: _TerminalProtocol(reader), read_file)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), write_file
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    return _Child(process, writer, [(reader, channel.stdout)], leader)


async def _copy(source: asyncio.StreamReader, sink: "asyncssh.SSHWriter[bytes]") -> None:
    """Copy output to the client until it ends or the client disconnects."""
    with suppress(OSError, asyncssh.Error):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
    await _drop(source)


async def _drop(source: asyncio.StreamReader) -> None:
    """Read and discard the rest, so that a full pipe does not block a job whose client has disconnected."""
    with suppress(OSError):
        while await source.read(CHUNK):
            pass


async def _feed(channel: "asyncssh.SSHServerProcess[bytes]", child: _Child) -> None:
    """Copy the client's input to the command; forward signals and window sizes."""
    with suppress(OSError, asyncssh.Error):
        while True:
            try:
                data = await channel.stdin.read(CHUNK)
            except asyncssh.TerminalSizeChanged as change:
                _resize(child.terminal, change.term_size)
                continue
            except (asyncssh.SignalReceived, asyncssh.BreakReceived) as event:
                _signal(child.process, getattr(event, "signal", "INT"))
                continue
            if not data:
                break
            child.stdin.write(data)
            await child.stdin.drain()
    if child.terminal < 0:
        child.stdin.close()
    elif channel.is_closing():
        _signal(child.process, "HUP")
    else:
        child.stdin.write(END_OF_FILE)


def _signal(process: Process, name: str) -> None:
    number = getattr(signal, f"SIG{name}", None)
    if number is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    """Set the window size (columns, rows, width, height) of a terminal."""
    columns, rows = size[:2]
    if terminal >= 0 and columns and rows:
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _take_terminal() -> None:
    """Make standard input the controlling terminal of the new session."""
    ioctl(0, termios.TIOCSCTTY, 0)
