"""Push a bundle to one machine: one exec channel, one tar stream, an atomic switch."""

import mmap
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.domain.ports import PushResult
from orchestrator.errors import HostKeyError, RemoteError
from orchestrator.ssh.connection import Link
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


def push_one(link: Link, data: Bundle, digest: str, root: str) -> PushResult:
    """
    Put the bundle on the link's machine and switch `current` to it; failures come back in the result.

    Raise HostKeyError only: a wrong key is no matter of trying again.
    """
    start, progress, error = monotonic(), Progress(), ""
    try:
        with link:
            _push(link, data, digest, root, progress)
    except HostKeyError:
        raise
    except RemoteError as fault:
        error = f"{fault.message}. The code that was on the machine is unchanged."
    return PushResult(link.host.name, progress.sent, monotonic() - start, error)


def map_file(path: Path) -> mmap.mmap:
    """Open a bundle for reading by all hosts at once."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _push(link: Link, data: Bundle, digest: str, root: str, progress: Progress) -> None:
    channel = link.execute(elevated(NAME, SCRIPT, root, digest, f"{link.settings.push:g}"))
    answers = read(link, channel)
    said = b""
    while not _lines(said) & {b"tpuctl-have", b"tpuctl-send"} and (piece := next(answers, b"")):
        said = _more(link, said, piece)
    if b"tpuctl-send" in _lines(said):
        _send(link, channel, data, progress)
    for piece in answers:
        said = _more(link, said, piece)
    code = exit_code(link, channel)
    if code != 0 or not _lines(said) & {b"tpuctl-have", b"tpuctl-done"}:
        words = errors_of(channel) or f"exit code {code}"
        raise RemoteError(f"push to {link.host.name} ({link.host.address}): {words}")


def _more(link: Link, said: bytes, piece: bytes) -> bytes:
    """Return all that was said; a machine that talks without end would fill our memory."""
    if len(said) + len(piece) > MOST_SAID:
        raise RemoteError(
            f"push to {link.host.name} ({link.host.address}): it printed more than {MOST_SAID >> 20} MiB"
        )
    return said + piece


def _lines(said: bytes) -> set[bytes]:
    """Return the whole lines so far; a login script of the machine may print some of its own."""
    return set(said.split(b"\n")[:-1])


def _send(link: Link, channel: "paramiko.Channel", data: Bundle, progress: Progress) -> None:
    """Send all of *data*; stop when the machine complains, its own words say why."""
    with suppress(OSError, EOFError):
        for start in range(0, len(data), _CHUNK):
            if channel.recv_ready():
                break
            piece = data[start : start + _CHUNK]
            channel.sendall(piece)
            progress.sent += len(piece)
            link.touch()
        channel.shutdown_write()
