"""Where the local cloud keeps its files, and how others find it."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import platformdirs

from orchestrator.private_folders import own_folder, private_file

PREFIX = "/_local"
"""The path of the daemon's own routes, which are nobody else's API."""
CONTROL, STORAGE = "control.sock", "storage.sock"
"""Unix sockets in the folder: the daemon's own routes, and storage for the machines' tunnels."""


@dataclass(frozen=True)
class Address:
    """
    Say how to reach a running local cloud (file `daemon.json`). *started* tells a reused pid apart.

    *on_demand* is set when a deployment started it, and not `tpuctl local start`. *relay* is the URL of its
    Identity-Aware Proxy.
    """

    pid: int
    started: int
    endpoint: str
    ssh_port: int
    project: str
    hosts: str
    on_demand: bool = False
    relay: str = ""


def local_folder() -> Path:
    """
    Return the local cloud's folder: TPUCTL_LOCAL_DIR, else the user's data folder.

    Raise UsageError for one that other users may write: it says which process to end and whom to ask.
    """
    return own_folder(local_path(), "set TPUCTL_LOCAL_DIR")


def local_path() -> Path:
    """Return the path of `local_folder`, whoever owns what is there."""
    chosen = os.environ.get("TPUCTL_LOCAL_DIR")
    if chosen:
        return Path(chosen).absolute()
    return platformdirs.user_data_path("tpuctl") / "local"


def read_address(folder: Path) -> Address | None:
    """Return the address of the daemon that runs in *folder*, or None when none does."""
    try:
        address = Address(**json.loads((folder / "daemon.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
    # A file that a killed daemon left behind names a pid that may be somebody else's by now.
    return address if start_of(address.pid) == address.started else None


def address_on_machine() -> Address | None:
    """
    Return the address of the local cloud to which this machine belongs, or None on any other computer.

    A machine sees the cloud as its user does, but never starts one.
    """
    endpoint, port = os.environ.get("TPUCTL_LOCAL_CLOUD"), os.environ.get("TPUCTL_LOCAL_SSH_PORT")
    if not endpoint or not port:
        return None
    return Address(0, 0, endpoint, int(port), os.environ.get("GOOGLE_CLOUD_PROJECT", ""), "")


def write_address(folder: Path, address: Address) -> None:
    """Publish the daemon's address in one step."""
    # Nobody else may write it: `local stop` ends the process that it names.
    private_file(folder / "daemon.json", json.dumps(asdict(address)).encode())


def start_of(pid: int) -> int:
    """Return the start time of a process in clock ticks since boot, or 0 when there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    fields = stat.rpartition(")")[2].split()
    return 0 if fields[0] in {"Z", "X"} else int(fields[19])
