"""The SSH key of a deployment: one ed25519 pair, readable by its owner only."""

from dataclasses import dataclass
from pathlib import Path
from typing import cast

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from orchestrator.contract.replacing import replacing
from orchestrator.domain.names import SSH_USER
from orchestrator.errors import UsageError
from orchestrator.private_folders import private_folder

KEY_FILE = "id_ed25519"


@dataclass(frozen=True)
class DeploymentKey:
    """The path of the private key and the public key (`ssh-ed25519 AAAA...`, without comment)."""

    path: Path
    public: str

    def metadata_line(self, user: str = SSH_USER) -> str:
        """Return the line for the machines' `ssh-keys` metadata (docs/facts.md 2.4)."""
        return f"{user}:{self.public} {user}"


def ensure_key(folder: Path) -> DeploymentKey:
    """
    Return the key in *folder*; create it if there is none. Parallel callers get the same key.

    The folder gets mode 0700 and the file 0600 under any umask. Raise UsageError if the file is damaged.
    """
    private_folder(folder)
    folder.chmod(0o700)
    path = folder / KEY_FILE
    if not path.exists():
        _create(path)
    path.chmod(0o600)
    return DeploymentKey(path, _public(path))


def forget_key(folder: Path) -> None:
    """Remove the key, if it exists."""
    (folder / KEY_FILE).unlink(missing_ok=True)


def _create(path: Path) -> None:
    """Write a new private key atomically; an existing file is kept."""
    text = Ed25519PrivateKey.generate().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    # Synced before it gets its name: a key damaged by a power loss would lock us out of the machines.
    with replacing(path, 0o600, keeps=True) as file:
        file.write(text)


def _public(path: Path) -> str:
    """Return the public half of a private key file. Raise UsageError if it is damaged."""
    try:
        key = serialization.load_ssh_private_key(path.read_bytes(), None)
    except (ValueError, TypeError) as error:
        raise UsageError(
            f"the SSH key {path} cannot be read: {error}",
            changed="nothing was changed",
            hint="restore the file from a copy, or remove it and run `tpuctl up` to create a new key",
        ) from error
    public = cast("Ed25519PrivateKey", key).public_key()
    return public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH).decode()
