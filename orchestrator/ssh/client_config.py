"""The machines in the words of OpenSSH's ssh_config, so that ssh, scp, rsync and editors reach them."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator.contract.replacing import replacing
from orchestrator.domain.ports import Host
from orchestrator.ssh import iap
from orchestrator.ssh.pinned_keys import pinned
from orchestrator.ssh.ssh_settings import SshSettings


@dataclass(frozen=True)
class NamedHost:
    """Hold a machine and the name that a person types for it."""

    alias: str
    host: Host


def client_config(machines: Sequence[NamedHost], settings: SshSettings, known_hosts: Path) -> str:
    """
    Return a Host block for each machine; *known_hosts* is written, with the keys that each must show.

    Nothing of it weakens OpenSSH: a machine that shows another key is refused. Raise HostKeyError for a machine
    without known keys, and OSError.
    """
    aliases = {one.host.name: one.alias for one in machines}
    lines = [
        f"{one.alias} {key.get_name()} {key.get_base64()}\n"
        for one in machines
        for key in pinned(one.host, settings.known_hosts, settings.warn)
    ]
    with replacing(known_hosts, 0o600) as file:
        file.write("".join(lines).encode())
    return "\n".join(_block(one, aliases, settings, known_hosts) for one in machines)


def _block(one: NamedHost, aliases: dict[str, str], settings: SshSettings, known_hosts: Path) -> str:
    host = one.host
    values = {
        "HostName": host.address, "Port": str(host.port), "User": settings.user,
        "IdentityFile": _path(settings.key), "IdentitiesOnly": "yes", "ForwardAgent": "no",
        # By its alias: the address may be another machine's tomorrow.
        "HostKeyAlias": one.alias, "UserKnownHostsFile": _path(known_hosts), "GlobalKnownHostsFile": "/dev/null",
        "StrictHostKeyChecking": "yes", "ServerAliveInterval": "15",
    }  # fmt: skip
    if host.via is not None:
        values["ProxyJump"] = aliases[host.via.name]
    elif host.iap is not None:
        values["ProxyCommand"] = iap.command(host.iap, host.port)
    elif settings.source:
        values["BindAddress"] = settings.source
    return "".join([f"Host {one.alias}\n", *(f"  {key} {value}\n" for key, value in values.items())])


def _path(path: Path) -> str:
    """Return a path as ssh_config reads it: in quotes, and each percent sign twice."""
    return '"' + str(path).replace("%", "%%") + '"'
