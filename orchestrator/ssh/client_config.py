"""Write the machines as an ssh_config file, for ssh, scp, rsync and editors."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.contract.replacing import replacing
from orchestrator.domain.remote import Host
from orchestrator.errors import UsageError
from orchestrator.private_folders import private_folder
from orchestrator.ssh.connect.pinned_keys import pinned
from orchestrator.ssh.connect.ssh_settings import SshSettings

_SPECIAL = frozenset('"\\$%*?[]')
"""Characters that OpenSSH, or some version of it, interprets in a path of ssh_config."""


_LINKED = "linked"
"""Comment at the host keys of a machine whose login has a link to the machine folder."""


@dataclass(frozen=True)
class NamedHost:
    """The host names of a machine in ssh_config, its own name last, and its ProxyCommand."""

    names: tuple[str, ...]
    proxy: tuple[str, ...]


def client_config(machines: Sequence[NamedHost], settings: SshSettings, known_hosts: Path) -> str:
    """
    Return a Host block for each machine, without addresses, so that it stays valid when a machine is replaced.

    *known_hosts* is the folder that `note_keys` writes to. Host key checks stay strict. Raise UsageError for
    a path that ssh_config cannot express.
    """
    return "\n".join(_block(one, settings, known_hosts) for one in machines)


def note_keys(
    name: str, host: Host, settings: SshSettings, known_hosts: Path, *, linked: bool = False
) -> bool:  # fmt: skip
    """
    Write the host keys that OpenSSH must accept for machine *name*; return whether it is recorded as *linked*.

    That mark is a comment beside the keys, and goes with them. Raise HostKeyError for a machine without known
    keys, and OSError.
    """
    private_folder(known_hosts)
    keys = pinned(host, settings.known_hosts, settings.warn)
    plain = [f"{name} {key.get_name()} {key.get_base64()}" for key in keys]
    with_link = "".join(f"{line} {_LINKED}\n" for line in plain).encode()
    file = known_hosts / name
    if file.exists() and file.read_bytes() == with_link:
        return True
    with replacing(file, 0o600) as written:
        written.write(with_link if linked else "".join(f"{line}\n" for line in plain).encode())
    return linked


def plain_path(path: Path) -> str:
    """Return *path* in quotes. Raise UsageError if ssh_config would interpret a character of it."""
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
        # OpenSSH reads known_hosts after the ProxyCommand has connected, and that command writes the file first.
        "ProxyCommand": proxy.replace("%", "%%"),
        "User": settings.user, "IdentityFile": plain_path(settings.key), "IdentitiesOnly": "yes",
        "HostKeyAlias": own, "UserKnownHostsFile": plain_path(known_hosts / own),
        "GlobalKnownHostsFile": "/dev/null", "StrictHostKeyChecking": "yes", "UpdateHostKeys": "no",
        # A machine runs third-party code, so it gets no access to this computer's agent or display.
        "ForwardAgent": "no", "ForwardX11": "no",
        # A preempted machine does not close its connections; only missing answers show that it is lost.
        "ServerAliveInterval": "15",
    }  # fmt: skip
    return "".join(
        [f"Host {' '.join(one.names)}\n", *(f"  {key} {value}\n" for key, value in values.items())]
    )
