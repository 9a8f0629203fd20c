"""
Package the loop for the VM, and install, start, stop and inspect it there.

Everything is in one tar, named by its sha256, and unpacked into a folder of that name; `current` is switched
by a rename, so the machine never has a mix of two versions.
"""

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.contract.service_state import ServiceState, service_state
from orchestrator.domain.machines.scopes import CLOUD_PLATFORM
from orchestrator.domain.remote import Host, Remote
from orchestrator.errors import RemoteError, UsageError
from orchestrator.scripts.shipped import remote_script

FOLDER = "controller"
INSTALL_TIMEOUT = 240.0
"""Seconds for the machine to unpack the loop; the end of its boot may take two minutes of them."""
CALL_TIMEOUT = 60.0
"""Seconds for a question to the loop on the VM over SSH."""
NO_SCOPE = 78
"""Exit status of the install script on a machine whose service account lacks the scope that the loop needs."""


@dataclass(frozen=True)
class Packed:
    """The tar of one loop, and its sha256 in hex."""

    data: bytes
    digest: str


@dataclass(frozen=True)
class LoopState:
    """Say which loop a machine has (sha256, empty: none), whether it runs, and what it wrote last."""

    digest: str
    running: bool
    service: ServiceState


def pack(files: Mapping[str, tuple[bytes, int]]) -> Packed:
    """Return *files* (content and mode by name) as a tar that is identical for identical content."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, (content, mode) in sorted(files.items()):
            entry = tarfile.TarInfo(name)
            # No owner and no times, so that the same files have the same digest on every computer.
            entry.size, entry.mode = len(content), mode
            archive.addfile(entry, io.BytesIO(content))
    data = buffer.getvalue()
    return Packed(data, hashlib.sha256(data).hexdigest())


def install(remote: Remote, host: Host, packed: Packed) -> None:
    """
    Install the loop on the machine and stop the one before; start nothing.

    Raise UsageError if the machine lacks the scope that the loop needs, RemoteError otherwise.
    """
    remote.put([host], packed.data, f"{FOLDER}/{packed.digest}.tar", 0o600)
    script = remote_script("install-loop", packed.digest, CLOUD_PLATFORM)
    (done,) = remote.run_elevated([host], script, INSTALL_TIMEOUT)
    if done.exit_code == NO_SCOPE:
        raise UsageError(
            f"{host.name} was made without the scope cloud-platform, so a loop there could not act",
            hint="recreate it: `tpuctl down`, then `tpuctl up` (checkpoints stay in the bucket)",
            changed="nothing was changed",
            code="TPU-136",
        )
    if done.exit_code:
        raise RemoteError(
            f"{host.name}: the loop could not be put there: {_reason(done.stderr)}",
            changed="the loop that ran there may be stopped",
        )


def start(remote: Remote, host: Host) -> None:
    """Start the loop; one that runs keeps running. Raise RemoteError."""
    _call(remote, host, "start")


def stop(remote: Remote, host: Host) -> None:
    """Stop the loop and remove its cron entry; do nothing on a machine without one. Raise RemoteError."""
    _call(remote, host, "stop")


def observe(remote: Remote, host: Host) -> LoopState:
    """Return the state of the loop on the machine. Raise RemoteError."""
    said = _call(remote, host, "state")
    try:
        # The last line only: shell profiles may print before it.
        body = json.loads(said.splitlines()[-1])
        return LoopState(str(body["digest"]), bool(body["running"]), service_state(str(body["state"])))
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise RemoteError(
            f"{host.name}: the state of the loop cannot be read: {said[-300:]!r}",
            changed="reading it changed nothing",
        ) from error


def _call(remote: Remote, host: Host, verb: str) -> str:
    (done,) = remote.run_elevated([host], remote_script("call-loop", verb), CALL_TIMEOUT)
    if done.exit_code:
        raise RemoteError(
            f"{host.name}: run-watch {verb}: {_reason(done.stderr)}",
            changed="whether the loop runs there now is not known",
        )
    return done.stdout


def _reason(stderr: str) -> str:
    return stderr.strip()[-600:] or "it gave no reason"
