"""
The SSH server of a `process` machine: listed keys only, bash, PTY, SFTP and tunnels.

It closes the connections of other users of the computer, and without external address those of whoever is no
machine of its cloud, before a word is said. Machines share the computer's network, so what a machine forwards
leaves from its own address.
"""

import asyncio
import os
from collections.abc import Awaitable
from contextlib import suppress
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Any

import asyncssh
from asyncssh.forward import SSHForwarder

from orchestrator.emulator.http.owner import listening
from orchestrator.emulator.machines.accounts import Accounts
from orchestrator.emulator.machines.environment import user_environment
from orchestrator.emulator.machines.settings import STANDARD_PORT, GuestConfig
from orchestrator.emulator.machines.ssh_session import run_session

SHELL = "/bin/bash"


class SshServer:
    """Serve one machine's logins; `accounts` may be replaced while it runs."""

    def __init__(self, config: GuestConfig) -> None:
        self._config = config
        self._listeners: list[asyncssh.SSHAcceptor] = []
        self.accounts: Accounts = {}

    async def start(self, host_key: Path) -> None:
        """
        Listen on the machine's address. Raises OSError when the port is taken.

        gcloud knows no port but 22, which may need privileges: it is a second one, where it can be had.
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
        """Close the ports and every connection."""
        for listener in self._listeners:
            listener.close()

    def environment(self, user: str) -> dict[str, str]:
        """Return the environment of a login, and create the home folder."""
        home = self._config.home(user)
        home.mkdir(parents=True, exist_ok=True)
        return user_environment(self._config.environment, user, home, SHELL)

    def admits(self, user: str, key: asyncssh.SSHKey) -> bool:
        """Tell whether *key* is one of the keys listed for *user*."""
        return any(_same(text, key) for text in self.accounts.get(user, ()))

    def lets_in(self, peer: str) -> bool:
        """Tell whether somebody with that address reaches this machine at all."""
        return not self._config.peers or IPv4Address(peer) in IPv4Network(self._config.peers)

    async def forward(self, host: str, port: int) -> Any:
        """Connect to where a client wants to go, and return asyncssh's session. Raise ChannelOpenError."""
        loop = asyncio.get_running_loop()
        try:
            _, there = await loop.create_connection(
                SSHForwarder, host, port, local_addr=(self._config.address, 0)
            )
        except OSError as error:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_CONNECT_FAILED, str(error)) from None
        return SSHForwarder(there)

    async def _session(self, process: "asyncssh.SSHServerProcess[bytes]") -> None:
        """Run the command, or an interactive shell (a login one would reset PATH)."""
        environment = self.environment(process.get_extra_info("username"))
        arguments = [SHELL, "-c", process.command] if process.command else [SHELL]
        await run_session(process, arguments, environment)

    def _sftp(self, channel: "asyncssh.SSHServerChannel[bytes]") -> asyncssh.SFTPServer:
        user = channel.get_connection().get_extra_info("username")
        return _Files(channel, Path(self.environment(user)["HOME"]))


class _Login(asyncssh.SSHServer):
    """Accept public keys of the accounts and nothing else; forward any port that is asked for."""

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
    """Serve files; relative paths start at the user's home, absolute ones are the computer's."""

    def __init__(self, channel: "asyncssh.SSHServerChannel[bytes]", home: Path) -> None:
        super().__init__(channel)
        self._channel = channel
        self._home = os.fsencode(home)

    def exit(self) -> None:
        super().exit()
        # OpenSSH's scp takes a channel without an exit status for a failed copy.
        self._channel.exit(0)

    def map_path(self, path: bytes) -> bytes:
        return os.path.join(self._home, path)  # noqa: PTH118 - bytes, which Path refuses


def _same(text: str, key: asyncssh.SSHKey) -> bool:
    """Compare a listed key with an offered one; a line that is no key matches nothing."""
    try:
        return asyncssh.import_public_key(text).public_data == key.public_data
    except (asyncssh.KeyImportError, ValueError):
        return False
