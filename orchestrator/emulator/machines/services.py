"""Provide logins and cron on a machine, by our own servers or by the system's."""

import asyncio
import os
import shlex
import shutil
import subprocess
from pathlib import Path

from orchestrator.emulator.machines.accounts import Accounts
from orchestrator.emulator.machines.cron import Cron
from orchestrator.emulator.machines.machine_image import CRON
from orchestrator.emulator.machines.machine_settings import GuestConfig
from orchestrator.emulator.machines.script_runner import Serial
from orchestrator.emulator.machines.ssh_server import SshServer

SSHD_CONFIG = """\
ListenAddress {address}:{port}
ListenAddress {address}:22
HostKey {host_key}
PidFile /run/sshd.pid
AuthorizedKeysFile {keys}/%u
AuthenticationMethods publickey
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
StrictModes no
UsePAM yes
PrintMotd no
Subsystem sftp internal-sftp
"""


class OwnServices:
    """The asyncssh server and the small cron, which need no privileges."""

    def __init__(self, config: GuestConfig, serial: Serial) -> None:
        self._ssh = SshServer(config)
        self._cron = None if CRON in config.absent else Cron(config, serial)
        self._cron_task: asyncio.Task[None] | None = None

    async def start(self, host_key: Path) -> None:
        await self._ssh.start(host_key)
        if self._cron is not None:
            self._cron_task = asyncio.create_task(self._cron.run())

    async def set_accounts(self, accounts: Accounts) -> None:
        self._ssh.accounts = accounts

    async def stop(self) -> None:
        if self._cron_task is not None:
            self._cron_task.cancel()
        await self._ssh.stop()


class SystemServices:
    """
    OpenSSH's sshd and the system's cron inside the machine's namespaces, as root.

    Each account is another name of uid 0 with its own home: equivalent to google-sudoers on the real machine,
    without sudo.
    """

    def __init__(self, config: GuestConfig) -> None:
        self._config = config
        self._keys = Path("/etc/ssh/local-cloud-keys")
        self._children: list[subprocess.Popen[bytes]] = []
        self._users: set[str] = set()

    async def start(self, host_key: Path) -> None:
        """Start both daemons in the foreground as children of the guest; wait until sshd listens. Raise OSError."""
        await asyncio.to_thread(self._start, host_key)
        # The host key is published next, after which clients connect; so sshd must listen by then.
        while not await _listens(self._config.address, self._config.ssh_port):
            if self._children[0].poll() is not None:
                raise OSError(
                    f"sshd ended with status {self._children[0].returncode}; guest.log has its words"
                )
            # Another process, which listens without a notification.
            await asyncio.sleep(0.02)

    def _start(self, host_key: Path) -> None:
        _write_system_files(self._config)
        self._keys.mkdir(parents=True, exist_ok=True)
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        config = Path("/etc/ssh/sshd_config_local_cloud")
        config.write_text(
            SSHD_CONFIG.format(
                address=self._config.address, port=self._config.ssh_port, host_key=host_key, keys=self._keys
            )
        )
        sshd = shutil.which("sshd") or "/usr/sbin/sshd"
        cron = shutil.which("cron") or "/usr/sbin/cron"
        self._children = [_daemon([sshd, "-D", "-e", "-f", str(config)])]
        if CRON not in self._config.absent:
            self._children.append(_daemon([cron, "-f"]))

    async def set_accounts(self, accounts: Accounts) -> None:
        await asyncio.to_thread(self._write_accounts, accounts)

    def _write_accounts(self, accounts: Accounts) -> None:
        for user, keys in accounts.items():
            if user != "root" and user not in self._users:
                _create_user(user)
            self._users.add(user)
            (self._keys / user).write_text("\n".join(keys) + "\n")
        for file in self._keys.iterdir():
            if file.name not in accounts:
                file.unlink()

    async def stop(self) -> None:
        for child in self._children:
            child.terminate()


async def _listens(address: str, port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection(address, port)
    except OSError:
        return False
    writer.close()
    return True


def _daemon(arguments: list[str]) -> "subprocess.Popen[bytes]":
    """Start a daemon with a plain environment; sessions get theirs from /etc/environment."""
    environment = {key: os.environ[key] for key in ("PATH", "LANG", "TZ") if key in os.environ}
    return subprocess.Popen(arguments, env=environment, stdin=subprocess.DEVNULL, start_new_session=True)


def _create_user(user: str) -> None:
    """Make *user* a name of uid 0; it may exist from an earlier boot or from the computer."""
    entries = [line.split(":") for line in Path("/etc/passwd").read_text().splitlines()]
    uid = next((entry[2] for entry in entries if entry[0] == user), "")
    if uid != "0":
        change = ["usermod"] if uid else ["useradd", "-M"]
        values = ["-o", "-u", "0", "-g", "0", "-d", f"/home/{user}", "-s", "/bin/bash", user]
        subprocess.run([*change, *values], check=True, capture_output=True)
    Path("/home", user).mkdir(parents=True, exist_ok=True)


def _write_system_files(config: GuestConfig) -> None:
    """Write what sessions read: variables (pam_env), PATH of login shells, and the metadata server's name."""
    lines = [f"{key}={shlex.quote(value)}\n" for key, value in config.environment.items()]
    Path("/etc/environment").write_text("".join(lines))
    Path("/etc/profile.d/local-cloud.sh").write_text(
        f"export PATH={shlex.quote(config.environment['PATH'])}\n"
    )
    Path("/etc/hosts").write_text(
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n"
        f"{config.address} {config.name}\n{config.address} metadata.google.internal metadata\n"
    )
