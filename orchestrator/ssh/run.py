"""Run commands on one machine. A lost channel is always an error, never exit code 0."""

import codecs
import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.domain.remote import CommandAnswer, RunResult
from orchestrator.errors import RemoteError

if TYPE_CHECKING:
    import mmap

    import paramiko

    from orchestrator.ssh.connect.connection import Connection

_CHUNK = 64 * 1024
MAX_OUTPUT = 64 << 20
"""Bytes of each output stream that are kept in memory."""
MAX_LINE = 1 << 20
"""Characters after which a line without an end is yielded in parts."""


def answer_of(connection: "Connection", command: str) -> CommandAnswer:
    """Open the connection and run a shell command; after an error the answer has the output until then."""
    output, errors = bytearray(), bytearray()
    code: int | None = None
    failed: RemoteError | None = None
    try:
        with connection:
            code = _run(connection, command, b"", output, errors)
    except RemoteError as error:
        failed = error
    return CommandAnswer(connection.host.name, code, _text(output), _text(errors), failed)


def run_one(connection: "Connection", command: str, stdin: bytes = b"") -> RunResult:
    """Open the connection and run a shell command as `run_over` does. Raise RemoteError."""
    with connection:
        return run_over(connection, command, stdin)


def run_over(connection: "Connection", command: str, stdin: "bytes | mmap.mmap" = b"") -> RunResult:
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
    """Run a shell command; append to *output* and *errors*, return the exit code. Raise RemoteError."""
    channel = connection.execute(command)
    # All three streams in parallel: a command that blocks on one would let the window of another fill.
    side = [
        threading.Thread(target=_feed, args=(connection, channel, stdin), daemon=True),
        threading.Thread(target=drain, args=(channel, errors, MAX_OUTPUT), daemon=True),
    ]
    for thread in side:
        thread.start()
    for data in read(connection, channel):
        output.extend(data)
        if len(output) > MAX_OUTPUT:
            channel.close()
            raise RemoteError(
                f"the command on {connection.host.name} printed more than {MAX_OUTPUT >> 20} MiB",
                hint="redirect its output to a file, or to the bucket",
            )
    for thread in side:
        thread.join()
    return exit_code(connection, channel)


def follow(connection: "Connection", command: str) -> Iterator[str]:
    """
    Open the connection and yield the lines that a command prints, without line ends.

    Raise RemoteError if the connection is lost, or if the command fails, with the end of its error output.
    """
    with connection:
        channel = connection.execute(command)
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        rest = ""
        for data in read(connection, channel):
            *lines, rest = (rest + decoder.decode(data)).split("\n")
            yield from lines
            if len(rest) > MAX_LINE:
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
    """Yield the output of a command until it ends or the channel is lost."""
    # recv also acknowledges the data, which raises if the connection is already closed.
    with contextlib.suppress(OSError, EOFError):
        while data := channel.recv(_CHUNK):
            connection.touch()
            yield data


def errors_of(channel: "paramiko.Channel") -> str:
    """Return the end of the command's error output, at most 600 characters."""
    errors = bytearray()
    drain(channel, errors, MAX_OUTPUT)
    return errors.decode(errors="replace").strip()[-600:]


def exit_code(connection: "Connection", channel: "paramiko.Channel") -> int:
    """Return the exit code. Raise RemoteError if the machine sent none."""
    code = channel.recv_exit_status()
    # -1 means no exit code: a signal ended the command, or the connection was lost.
    if code < 0:
        raise _by_signal(connection) if _answers(channel) else connection.error_of()
    return code


def _answers(channel: "paramiko.Channel") -> bool:
    """Return whether the machine still answers, although it has closed *channel*."""
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
        hint="`tpuctl status` shows whether the machine is still there",
    )


def _feed(connection: "Connection", channel: "paramiko.Channel", stdin: "bytes | mmap.mmap") -> None:
    """Send *stdin*; a command may end without reading all of it."""
    view = memoryview(stdin)
    with contextlib.suppress(OSError, EOFError):
        for start in range(0, len(view), _CHUNK):
            channel.sendall(bytes(view[start : start + _CHUNK]))
            connection.touch()
        channel.shutdown_write()


def drain(channel: "paramiko.Channel", into: bytearray, most: int) -> None:
    """Read the error stream to its end; keep the first *most* bytes, up to one chunk more."""
    with contextlib.suppress(OSError, EOFError):
        while data := channel.recv_stderr(_CHUNK):
            # Keep reading beyond the limit: a full window would block the command.
            if len(into) <= most:
                into.extend(data)


def _text(data: bytearray) -> str:
    return data.decode(errors="replace")
