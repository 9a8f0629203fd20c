"""Push a bundle to one machine: one exec channel, one tar stream, an atomic switch."""

import mmap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.domain.ports import PushResult
from orchestrator.errors import HostKeyError, RemoteError
from orchestrator.ssh.connection import Connection
from orchestrator.ssh.elevate import elevated
from orchestrator.ssh.push_script import NAME, SCRIPT
from orchestrator.ssh.run import errors_of, exit_code, read

if TYPE_CHECKING:
    import paramiko

Bundle: TypeAlias = "bytes | mmap.mmap"

_CHUNK = 256 * 1024
MOST_SAID = 1 << 20
"""Bytes that a machine may print while it is sent to: login scripts print little."""


@dataclass
class Progress:
    """Count the bytes that went out, so that a cut push can say how far it came."""

    sent: int = 0


def push_one(connection: Connection, data: Bundle, digest: str, root: str) -> PushResult:
    """
    Put the bundle on the connection's machine and switch `current` to it; failures come back in the result.

    Raise HostKeyError only: a wrong key is no matter of trying again.
    """
    start, progress, error = monotonic(), Progress(), ""
    try:
        with connection:
            _push(connection, data, digest, root, progress)
    except HostKeyError:
        raise
    except RemoteError as fault:
        error = f"{fault.message}. The code that was on the machine is unchanged."
    return PushResult(connection.host.name, progress.sent, monotonic() - start, error)


def map_file(path: Path) -> mmap.mmap:
    """Open a bundle for reading by all hosts at once."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _push(connection: Connection, data: Bundle, digest: str, root: str, progress: Progress) -> None:
    channel = connection.execute(elevated(NAME, SCRIPT, root, digest, f"{connection.settings.push:g}"))
    answers = read(connection, channel)
    said = b""
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


def _more(connection: Connection, said: bytes, piece: bytes) -> bytes:
    """Return all that was said; a machine that talks without end would fill our memory."""
    if len(said) + len(piece) > MOST_SAID:
        raise RemoteError(
            f"push to {connection.host.name} ({connection.host.address}): "
            f"it printed more than {MOST_SAID >> 20} MiB"
        )
    return said + piece


def _lines(said: bytes) -> set[bytes]:
    """Return the whole lines so far; a login script of the machine may print some of its own."""
    return set(said.split(b"\n")[:-1])


def _send(connection: Connection, channel: "paramiko.Channel", data: Bundle, progress: Progress) -> None:
    """Send all of *data*; stop when the machine complains, its own words say why."""
    with suppress(OSError, EOFError):
        for start in range(0, len(data), _CHUNK):
            if channel.recv_ready():
                break
            piece = data[start : start + _CHUNK]
            channel.sendall(piece)
            progress.sent += len(piece)
            connection.touch()
        channel.shutdown_write()
