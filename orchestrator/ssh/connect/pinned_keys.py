"""
Pin host keys: which key a machine must show; every other key is refused.

The keys come from the machine's guest attributes, read over TLS. They are stored by machine name (a TPU's
name holds its incarnation), so that they stay known while the attributes are unreadable.
"""

from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import quote

import paramiko

from orchestrator.contract.replacing import replacing
from orchestrator.domain.remote import Host
from orchestrator.errors import HostKeyError
from orchestrator.private_folders import private_folder

_PREFERENCE = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
_NOTHING_SENT = "nothing was sent to it"


def remember(folder: Path, host: Host) -> None:
    """Store the pinned keys of *host*, one file for each machine name, replaced atomically."""
    private_folder(folder)
    text = "".join(f"{key}\n" for key in host.host_keys)
    target = _file(folder, host.name)
    if target.exists() and target.read_text() == text:
        return
    with replacing(target, 0o600) as file:
        file.write(text.encode())


def recall(folder: Path, name: str) -> tuple[str, ...]:
    """Return the stored keys of a machine; an empty tuple if there are none."""
    target = _file(folder, name)
    return tuple(target.read_text().split("\n")[:-1]) if target.exists() else ()


def pinned(
    host: Host, folder: Path | None, warn: Callable[[str], None] = lambda _: None
) -> tuple[paramiko.PKey, ...]:
    """
    Return the keys that *host* may show, preferred type first; call *warn* if its keys have changed.

    Raise HostKeyError if there is none, or if a line is not a known type of key.
    """
    before = recall(folder, host.name) if folder is not None else ()
    # If none are published, use the stored ones, never the key that the machine shows.
    lines = host.host_keys or before
    if not lines:
        raise HostKeyError(
            f"the host key of {host.name} ({host.address}) is not known: the machine has not published one",
            changed=_NOTHING_SENT,
            hint="wait until the machine has booted, then run the command again",
        )
    keys = sorted((_parse(host, line) for line in lines), key=lambda key: _rank(key.get_name()))
    if host.host_keys and folder is not None:
        if before and not set(before) & set(host.host_keys):
            # New keys are normal for a machine recreated under its old name, or when its owner publishes
            # others. What is published through Google's API is more trustworthy than our copy, so this only warns.
            warn(
                f"{host.name} publishes other host keys than before, now {fingerprint(keys[0])}: expected if "
                "the machine was recreated, otherwise a user of it, or of the project, has changed them"
            )
        remember(folder, host)
    return tuple(keys)


def refusal(host: Host, shown: paramiko.PKey, expected: Sequence[paramiko.PKey]) -> HostKeyError:
    """Return the error for a machine that shows a key other than the pinned ones."""
    wanted = ", ".join(f"{key.get_name()} {fingerprint(key)}" for key in expected)
    return HostKeyError(
        f"{host.name} ({host.address} port {host.port}) presents the host key {shown.get_name()} "
        f"{fingerprint(shown)}, expected {wanted}: this is another machine, or its key has changed",
        changed=_NOTHING_SENT,
        hint="run `tpuctl status` to see whether the machine still exists; a recreated machine "
        "publishes its new key: run the command again; otherwise do not trust this address",
    )


def fingerprint(key: paramiko.PKey) -> str:
    """Return a key's fingerprint as OpenSSH prints it."""
    return str(key.fingerprint)


def _parse(host: Host, line: str) -> paramiko.PKey:
    """Parse one `type base64 [comment]` line. Raise HostKeyError."""
    try:
        kind, text = line.split()[:2]
        entry = paramiko.hostkeys.HostKeyEntry.from_line(f"pin {kind} {text}")
    except (ValueError, paramiko.SSHException, paramiko.hostkeys.InvalidHostKey):
        entry = None
    if entry is None or entry.key is None:
        raise HostKeyError(
            f"the published host key of {host.name} is not a key: {line[:80]!r}",
            changed=_NOTHING_SENT,
            hint="run the command again; if the message stays the same, replace the machine",
        )
    return entry.key


def _rank(kind: str) -> int:
    return _PREFERENCE.index(kind) if kind in _PREFERENCE else len(_PREFERENCE)


def _file(folder: Path, name: str) -> Path:
    return folder / quote(name, safe="")
