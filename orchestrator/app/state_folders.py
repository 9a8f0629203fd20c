"""Where this computer remembers its deployments, and their names; light enough for the completion of a shell."""

import hashlib
import os
import secrets
from contextlib import suppress
from pathlib import Path

import platformdirs

from orchestrator.emulator.address import local_path
from orchestrator.private_folders import own_folder, private_folder

RECORD_KEY = "record.key"
SPEC_FILE = "spec.json"
"""What `up` wanted, kept beside the record: by it a deployment is known without its file."""


def state_folder(cloud: str) -> Path:
    """
    Return where deployments are remembered: TPUCTL_STATE_DIR, else the user's state folder.

    Those of the local cloud live inside it, so that they vanish with it. Raise UsageError for a folder that
    other users may write: hooks and commands are in it.
    """
    path = state_path(cloud)
    # The parent too: whoever may write there can put another folder in its place.
    own_folder(path.parent, "set TPUCTL_STATE_DIR")
    return own_folder(path, "set TPUCTL_STATE_DIR")


def state_path(cloud: str) -> Path:
    """Return the path of `state_folder`, whoever owns what is there."""
    chosen = os.environ.get("TPUCTL_STATE_DIR")
    if chosen:
        return Path(chosen).absolute() / cloud
    if cloud == "local":
        return local_path() / "deployments"
    return platformdirs.user_state_path("tpuctl") / "deployments"


def record_key(cloud: str) -> bytes:
    """
    Return this user's key, by which a record proves who has written it; made when first used.

    Machines of the job never see it; the loop on the VM has a copy. It is empty where no disk takes it.
    """
    path = state_folder(cloud) / RECORD_KEY
    try:
        if not path.exists():
            private_folder(path.parent)
            # Complete under its last name or not there at all: a key cut short by a kill would prove nothing.
            fresh = path.with_name(f".{RECORD_KEY}.{os.getpid()}")
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(secrets.token_bytes(32))
            # Of two commands that make one at the same time the first one's stays.
            with suppress(FileExistsError):
                path.hardlink_to(fresh)
            fresh.unlink()
        return path.read_bytes()
    # An empty key proves nothing, so records then count as written by a stranger, and are asked about.
    except OSError:
        return b""


def known_files(cloud: str) -> list[Path]:
    """Return the stored specs, one for each deployment that was brought up here."""
    return sorted(state_folder(cloud).glob(f"*/*/{SPEC_FILE}"))


def is_known(cloud: str, name: str) -> bool:
    """Say whether this computer has brought a deployment of that name up, in whatever project."""
    return any(path.parent.name == name for path in known_files(cloud))


def on_machine() -> bool:
    """Say whether this computer is a machine in the network of the deployment: the loop on the VM runs there."""
    return bool(os.environ.get("TPUCTL_CONTROLLER"))


def own_address() -> str:
    """
    Return the address that a machine of the local cloud connects from; empty on every other computer.

    Machines share this computer's network, so the system would choose 127.0.0.1 for all of them.
    """
    return os.environ.get("TPUCTL_LOOPBACK", "") if on_machine() else ""


def bug_prefix() -> str:
    """Return how the names of stories of bugs begin: apart for each state folder, as one user may have several."""
    mark = hashlib.sha256(os.fsencode(state_path("gcp"))).hexdigest()[:8]
    return f"tpuctl-bug-{mark}-"
