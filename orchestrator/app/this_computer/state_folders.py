"""Locate the state folders of this computer; imports little, because shell completion uses it."""

import hashlib
import os
import secrets
from pathlib import Path

import platformdirs

from orchestrator.contract.replacing import replacing
from orchestrator.emulator.address import local_path
from orchestrator.private_folders import own_folder, private_folder

RECORD_KEY = "record.key"
SPEC_FILE = "spec.json"
"""The stored spec beside the record; it identifies a deployment without its file."""


def state_folder(cloud: str) -> Path:
    """
    Return the folder of deployments: TPUCTL_STATE_DIR, else the user's state folder.

    Those of the local cloud are inside that, so that they are deleted with it. Raise UsageError if other
    users may write to it, because it holds hooks and commands.
    """
    path = state_path(cloud)
    # The parent too, since a user who may write there can replace the folder.
    own_folder(path.parent, "set TPUCTL_STATE_DIR")
    return own_folder(path, "set TPUCTL_STATE_DIR")


def included_file(cloud: str, project: str, name: str) -> Path:
    """Return the path of the file with one deployment's machines that the user's ssh_config includes."""
    return state_folder(cloud).parent / "ssh" / f"{cloud}-{project}-{name}.conf"


def state_path(cloud: str) -> Path:
    """Return the path of `state_folder` without checking its owner."""
    chosen = os.environ.get("TPUCTL_STATE_DIR")
    if chosen:
        return Path(chosen).absolute() / cloud
    if cloud == "local":
        return local_path() / "deployments"
    return platformdirs.user_state_path("tpuctl") / "deployments"


def record_key(cloud: str) -> bytes:
    """
    Return this user's key, which signs records; it is created on first use.

    Machines of the job never get it; the loop on the VM has a copy. b"" if it cannot be stored.
    """
    path = state_folder(cloud) / RECORD_KEY
    try:
        if not path.exists():
            private_folder(path.parent)
            # A truncated key would sign nothing that can be verified later. If two commands create one at the
            # same time, the first one's stays.
            with replacing(path, 0o600, keeps=True) as file:
                file.write(secrets.token_bytes(32))
        return path.read_bytes()
    # With an empty key, records count as written by another user, and a question is asked.
    except OSError:
        return b""


def known_files(cloud: str) -> list[Path]:
    """Return the stored specs of the deployments brought up here."""
    return sorted(state_folder(cloud).glob(f"*/*/{SPEC_FILE}"))


def is_known(cloud: str, name: str) -> bool:
    """Return whether this computer has brought up a deployment of that name, in any project."""
    return any(path.parent.name == name for path in known_files(cloud))


def on_machine() -> bool:
    """Return whether this process runs on a machine of the deployment, as the loop on the VM does."""
    return bool(os.environ.get("TPUCTL_CONTROLLER"))


def own_address() -> str:
    """
    Return the source address of a local machine's connections; "" on every other computer.

    Local machines share this computer's network, where the system would choose 127.0.0.1 for all of them.
    """
    return os.environ.get("TPUCTL_LOOPBACK", "") if on_machine() else ""


def bug_prefix() -> str:
    """Return the file name prefix of bug reports, which differs between state folders."""
    mark = hashlib.sha256(os.fsencode(state_path("gcp"))).hexdigest()[:8]
    return f"tpuctl-bug-{mark}-"
