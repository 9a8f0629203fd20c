"""Commands on one machine: an exit code, or an error; a lost channel is never success."""

import codecs
import contextlib
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.domain.ports import RunResult
from orchestrator.errors import RemoteError

if TYPE_CHECKING:
    import mmap

    import paramiko

    from orchestrator.ssh.connection import Connection

_CHUNK = 64 * 1024
MOST_OUTPUT = 64 << 20
"""Most bytes of each stream of a command: a machine may print until this computer has no memory left."""
LONGEST_LINE = 1 << 20
"""Characters after which a line that does not end is given out in parts."""


@dataclass(frozen=True)
class CommandAnswer:
    """Hold what one machine printed, its exit code, and without one the fault that says why there is none."""

    host: str
    exit_code: int | None
    stdout: str
    stderr: str
    fault: RemoteError | None = None


def answer_of(connection: "Connection", command: str) -> CommandAnswer:
    """Open the connection and run a shell command over it; the answer holds what came before a fault, too."""
    output, errors = bytearray(), bytearray()
    code: int | None = None
    fault: RemoteError | None = None
    try:
        with connection:
            code = _run(connection, command, b"", output, errors)
    except RemoteError as error:
        fault = error
    return CommandAnswer(connection.host.name, code, _text(output), _text(errors), fault)


def run_one(connection: "Connection", command: str, stdin: bytes = b"") -> RunResult:
    """Open the connection and run a shell command over it, see `run_on`. Raise RemoteError."""
    with connection:
        return run_on(connection, command, stdin)


def run_on(connection: "Connection", command: str, stdin: "bytes | mmap.mmap" = b"") -> RunResult:
    """
    Run a shell command over an open connection and return its exit code and output.

    Raise RemoteError when the channel is lost or the command was ended by a signal.
    """
    output, errors = bytearray(), bytearray()
    code = _run(connection, command, stdin, output, errors)
    return RunResult(code, _text(output), _text(errors))


def _run(
    connection: "Connection", command: str, stdin: "bytes | mmap.mmap", output: bytearray, errors: bytearray
) -> int:
    """Run a shell command over an open connection into *output* and *errors*, and return its exit code."""
    channel = connection.execute(command)
    # Both streams and the input at once: a command that waits for one of them would fill the other's window.
    side = [
        threading.Thread(target=_feed, args=(connection, channel, stdin), daemon=True),
        threading.Thread(target=drain, args=(channel, errors, MOST_OUTPUT), daemon=True),
    ]
    for thread in side:
        thread.start()
    for data in read(connection, channel):
        output.extend(data)
        if len(output) > MOST_OUTPUT:
            channel.close()
            raise RemoteError(
                f"the command on {connection.host.name} printed more than {MOST_OUTPUT >> 20} MiB",
                hint="redirect its output to a file, or to the bucket",
            )
    for thread in side:
        thread.join()
    return exit_code(connection, channel)


def follow(connection: "Connection", command: str) -> Iterator[str]:
    """
    Open the connection and yield the lines a command prints, as they come and without end of line.

    Raise RemoteError when the connection is lost or the command fails; then its last words are in the message.
    """
    with connection:
        channel = connection.execute(command)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        for data in read(connection, channel):
            *lines, rest = (rest + decoder.decode(data)).split("\n")
            yield from lines
            if len(rest) > LONGEST_LINE:
                yield rest
                rest = ""
        if rest:
            yield rest
        code = exit_code(connection, channel)
        if code:
            raise RemoteError(
                f"the command on {connection.host.name} ended with exit code {code}: {errors_of(channel)}"
            )


def read(connection: "Connection", channel: "paramiko.Channel") -> Iterator[bytes]:
    """Yield what the command prints until its output ends or the channel is gone."""
    # What is taken is acknowledged, and a connection that was cut may be found gone by that.
    with contextlib.suppress(OSError, EOFError):
        while data := channel.recv(_CHUNK):
            connection.touch()
            yield data


def errors_of(channel: "paramiko.Channel") -> str:
    """Return what the command said on its error stream, shortened for a message."""
    errors = bytearray()
    drain(channel, errors, MOST_OUTPUT)
    return errors.decode(errors="replace").strip()[-600:]


def exit_code(connection: "Connection", channel: "paramiko.Channel") -> int:
    """Return the exit code. Raise RemoteError when the machine did not send one."""
    code = channel.recv_exit_status()
    # -1: closed without an exit code, because a signal ended the command or the connection was lost.
    if code < 0:
        raise _by_signal(connection) if _answers(channel) else connection.fault()
    return code


def _answers(channel: "paramiko.Channel") -> bool:
    """Say whether the machine still answers on the connection of a channel that it has closed."""
    try:
        transport = channel.get_transport()
        transport.global_request("keepalive@openssh.com", wait=True)
        return bool(transport.is_active())
    except (OSError, EOFError):
        return False


def _by_signal(connection: "Connection") -> RemoteError:
    return RemoteError(
        f"the command on {connection.host.name} sent no exit code: a signal ended it (it ran out of memory, or "
        "was killed)",
        hint="`tpuctl status` shows whether the machine is still there.",
    )


def _feed(connection: "Connection", channel: "paramiko.Channel", stdin: "bytes | mmap.mmap") -> None:
    """Send the input; a command may end without reading it."""
    view = memoryview(stdin)
    with contextlib.suppress(OSError, EOFError):
        for start in range(0, len(view), _CHUNK):
            channel.sendall(bytes(view[start : start + _CHUNK]))
            connection.touch()
        channel.shutdown_write()


def drain(channel: "paramiko.Channel", into: bytearray, most: int) -> None:
    """Read the error stream to its end, and keep its first *most* bytes or a little more."""
    with contextlib.suppress(OSError, EOFError):
        while data := channel.recv_stderr(_CHUNK):
            # Read on beyond the limit, or the command would block on a full window; only keep no more.
            if len(into) <= most:
                into.extend(data)


def _text(data: bytearray) -> str:
    return data.decode(errors="replace")
