"""Locate the local cloud's files, and the address that it publishes there."""

import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import platformdirs

from orchestrator.private_folders import own_folder, private_file

OWNER = "owner.json"
"""File of a local cloud that must not outlive one process: a demo's or a rehearsal's."""
PREFIX = "/_local"
"""Path prefix of the daemon's own routes."""
CONTROL, STORAGE = "control.sock", "storage.sock"
"""Unix sockets in the folder: the daemon's own routes, and storage for the machines' tunnels."""


@dataclass(frozen=True)
class Address:
    """
    The address of a running local cloud (file `daemon.json`).

    *started* identifies the process together with its pid. *on_demand* means that a deployment started it,
    not `tpuctl local start`. *relay* is the URL of its Identity-Aware Proxy.
    """

    pid: int
    started: int
    endpoint: str
    ssh_port: int
    project: str
    machines: str
    on_demand: bool = False
    relay: str = ""


_MACHINES = "hosts"
"""The key of `machines` in stored files. It is the older word: a local cloud that exists has it."""


def to_stored(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an address, or of options, with the keys that their file has."""
    return {_MACHINES if key == "machines" else key: value for key, value in body.items()}


def from_stored(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of an address, or of options, from what their file has."""
    return {"machines" if key == _MACHINES else key: value for key, value in body.items()}


def local_folder() -> Path:
    """
    Return the local cloud's folder: TPUCTL_LOCAL_DIR, else the user's data folder.

    Raise UsageError if other users may write to it: its files say which process to end and which server to
    trust.
    """
    return own_folder(local_path(), "set TPUCTL_LOCAL_DIR")


def local_path() -> Path:
    """Return the path of `local_folder` without checking its owner."""
    chosen = os.environ.get("TPUCTL_LOCAL_DIR")
    if chosen:
        return Path(chosen).absolute()
    return platformdirs.user_data_path("tpuctl") / "local"


def read_address(folder: Path) -> Address | None:
    """Return the address of the daemon running in *folder*, None if none runs."""
    try:
        address = Address(**from_stored(json.loads((folder / "daemon.json").read_text())))
    except (OSError, ValueError, TypeError):
        return None
    # After a daemon was killed, its pid may belong to another process by now.
    return address if start_of(address.pid) == address.started else None


def address_on_machine() -> Address | None:
    """
    Return the address of this machine's local cloud, None if this is not a local machine.

    A machine uses the cloud as its user does, but never starts one.
    """
    endpoint, port = os.environ.get("TPUCTL_LOCAL_CLOUD"), os.environ.get("TPUCTL_LOCAL_SSH_PORT")
    if not endpoint or not port:
        return None
    return Address(0, 0, endpoint, int(port), os.environ.get("GOOGLE_CLOUD_PROJECT", ""), "")


def write_address(folder: Path, address: Address) -> None:
    """Publish the daemon's address atomically."""
    # Only the owner may write it, since `local stop` kills the process that it names.
    private_file(folder / "daemon.json", json.dumps(to_stored(asdict(address))).encode())


def own(folder: Path) -> None:
    """Bind the local cloud of *folder* to this process: it ends with it, however the process ends."""
    pid = os.getpid()
    private_file(folder / OWNER, json.dumps({"pid": pid, "started": start_of(pid)}).encode())


def disown(folder: Path) -> None:
    """Let the local cloud of *folder* outlive its owner."""
    (folder / OWNER).unlink(missing_ok=True)


def owner_ended(folder: Path) -> bool:
    """Return whether the local cloud of *folder* has an owner that has ended, or has lost *folder* itself."""
    # Nothing finds it any more: its address was there.
    if not folder.is_dir():
        return True
    try:
        owner = json.loads((folder / OWNER).read_text())
        return start_of(int(owner["pid"])) != int(owner["started"])
    except (OSError, ValueError, TypeError, KeyError):
        return False


def start_of(pid: int) -> int:
    """Return a process's start time in clock ticks since boot, 0 if it does not exist."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])
