"""The machines in the words of OpenSSH's ssh_config, so that ssh, scp, rsync and editors reach them."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.contract.replacing import replacing
from orchestrator.domain.ports import Host
from orchestrator.errors import UsageError
from orchestrator.private_folders import private_folder
from orchestrator.ssh.pinned_keys import pinned
from orchestrator.ssh.ssh_settings import SshSettings

_SPECIAL = frozenset('"\\$%*?[]')
"""What ssh_config reads in a path as something else than itself, or does so in some versions."""


@dataclass(frozen=True)
class NamedHost:
    """Hold the names that a person types for a machine, its own last, and the command that leads to it."""

    names: tuple[str, ...]
    proxy: tuple[str, ...]


def client_config(machines: Sequence[NamedHost], settings: SshSettings, known_hosts: Path) -> str:
    """
    Return a Host block for each machine. Nothing in it is an address, so it holds whatever becomes of them.

    *known_hosts* is the folder of `note_keys`. Nothing of it weakens OpenSSH: a machine that shows another key
    is refused. Raise UsageError for a path that ssh_config cannot hold.
    """
    return "\n".join(_block(one, settings, known_hosts) for one in machines)


def note_keys(name: str, host: Host, settings: SshSettings, known_hosts: Path) -> None:
    """
    Write down for OpenSSH which keys the machine *name* must show from now on.

    Raise HostKeyError for a machine without known keys, and OSError.
    """
    private_folder(known_hosts)
    keys = pinned(host, settings.known_hosts, settings.warn)
    lines = [f"{name} {key.get_name()} {key.get_base64()}\n" for key in keys]
    with replacing(known_hosts / name, 0o600) as file:
        file.write("".join(lines).encode())


def plain_path(path: Path) -> str:
    """Return a path in quotes. Raise UsageError for one that ssh_config would read in another way."""
    text = str(path)
    if not text.isprintable() or _SPECIAL & set(text):
        raise UsageError(
            f"OpenSSH cannot be told of the folder {text!r}: it has special characters",
            hint="set TPUCTL_STATE_DIR to a folder with a plain name, then run: tpuctl up",
            changed="nothing was written", code="TPU-101",
        )  # fmt: skip
    return f'"{text}"'


def _block(one: NamedHost, settings: SshSettings, known_hosts: Path) -> str:
    *_, own = one.names
    proxy = shlex.join(one.proxy)
    if not proxy.isprintable():
        raise UsageError(
            f"OpenSSH cannot be told of this command: {proxy!r}", hint="use a folder with a plain name",
            changed="nothing was written", code="TPU-101",
        )  # fmt: skip
    values = {
        # OpenSSH reads the keys when the machine has answered, so after this command has written them.
        "ProxyCommand": proxy.replace("%", "%%"),
        "User": settings.user, "IdentityFile": plain_path(settings.key), "IdentitiesOnly": "yes",
        "HostKeyAlias": own, "UserKnownHostsFile": plain_path(known_hosts / own),
        "GlobalKnownHostsFile": "/dev/null", "StrictHostKeyChecking": "yes", "UpdateHostKeys": "no",
        # A machine runs other people's code: nothing of this computer is lent to it.
        "ForwardAgent": "no", "ForwardX11": "no",
        # A machine that was taken away does not say goodbye.
        "ServerAliveInterval": "15",
    }  # fmt: skip
    return "".join(
        [f"Host {' '.join(one.names)}\n", *(f"  {key} {value}\n" for key, value in values.items())]
    )
