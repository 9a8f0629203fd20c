"""
Install a bundle or one small file on one machine, atomically.

A bundle takes one exec channel: a tar stream, then the switch of `current`.
"""

import hashlib
import mmap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.domain.remote import MachinePush
from orchestrator.errors import HostKeyError, RemoteError
from orchestrator.scripts.shipped import remote_script
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.run import errors_of, exit_code, read, run_over

if TYPE_CHECKING:
    import paramiko

    from orchestrator.ssh.connect.connection import Connection

Bundle: TypeAlias = "bytes | mmap.mmap"

_CHUNK = 256 * 1024
MAX_SAID = 1 << 20
"""Bytes that a machine may print during an upload; login scripts print little."""


@dataclass
class UploadProgress:
    """Bytes sent so far, for the message about an interrupted push."""

    sent: int = 0


def push_one(connection: "Connection", data: Bundle, digest: str, root: str) -> MachinePush:
    """
    Install the bundle on the connection's machine and switch `current` to it; a failure is in the result.

    Raise HostKeyError only, since a retry cannot help against a wrong key.
    """
    start, progress, error = monotonic(), UploadProgress(), ""
    try:
        with connection:
            _push(connection, data, digest, root, progress)
    except HostKeyError:
        raise
    except RemoteError as failed:
        error = f"{failed.message}. The code that was on the machine is unchanged."
    return MachinePush(connection.host.name, progress.sent, monotonic() - start, error)


def map_file(path: Path) -> mmap.mmap:
    """Map a file into memory, read-only, so that pushes to all hosts share one copy."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _push(connection: "Connection", data: Bundle, digest: str, root: str, progress: UploadProgress) -> None:
    script = remote_script("push", digest, f"{connection.settings.push:g}")
    channel = connection.execute(elevated(script, root))
    answers = read(connection, channel)
    said = b""
    # Login scripts may print first, so wait for the script's own answer before sending.
    while not _lines(said) & {b"tpuctl-have", b"tpuctl-send"} and (piece := next(answers, b"")):
        said = _more(connection, said, piece)
    if b"tpuctl-send" in _lines(said):
        _send(connection, channel, data, progress)
    for piece in answers:
        said = _more(connection, said, piece)
    code = exit_code(connection, channel)
    if code != 0 or not _lines(said) & {b"tpuctl-have", b"tpuctl-done"}:
        words = errors_of(channel) or f"exit code {code}"
        raise RemoteError(f"push to {connection.host.name} ({connection.host.address}): {words}")


def _more(connection: "Connection", said: bytes, piece: bytes) -> bytes:
    """Append *piece* to *said*. Raise RemoteError above MAX_SAID, which would fill our memory."""
    if len(said) + len(piece) > MAX_SAID:
        raise RemoteError(
            f"push to {connection.host.name} ({connection.host.address}): "
            f"it printed more than {MAX_SAID >> 20} MiB"
        )
    return said + piece


def _lines(said: bytes) -> set[bytes]:
    """Return the complete lines received so far; login scripts may add lines of their own."""
    return set(said.split(b"\n")[:-1])


def _send(
    connection: "Connection", channel: "paramiko.Channel", data: Bundle, progress: UploadProgress
) -> None:
    """Send *data*; stop early if the machine prints an error, which the caller reports."""
    with suppress(OSError, EOFError):
        for start in range(0, len(data), _CHUNK):
            if channel.recv_ready():
                break
            piece = data[start : start + _CHUNK]
            channel.sendall(piece)
            progress.sent += len(piece)
            connection.touch()
        channel.shutdown_write()


def put_one(connection: "Connection", data: bytes, root: str, target: str, mode: int) -> None:
    """
    Write *data* at *target* (relative to the machine folder *root*) with *mode*, atomically.

    Raise RemoteError.
    """
    digest = hashlib.sha256(data).hexdigest()
    command = elevated(remote_script("put", target, digest, f"{mode:04o}"), root)
    with connection:
        result = run_over(connection, command, data)
    if result.exit_code:
        raise RemoteError(
            f"{target} on {connection.host.name} could not be written: {result.stderr.strip()[-600:]}",
            changed="the file that was there is unchanged",
        )
