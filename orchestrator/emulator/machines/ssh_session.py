"""
One SSH session of a `process` machine: a command on pipes, or a shell on a terminal.

The bytes are copied here, not by asyncssh's redirection: that one loses the end of a large input when
the end of file arrives while its pipe is being refilled (seen with 2.24 on Python 3.11).
"""

import asyncio
import os
import pty
import signal
import struct
import termios
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import dataclass
from fcntl import ioctl

import asyncssh

CHUNK = 64 * 1024
END_OF_FILE = b"\x04"  # what a terminal line discipline takes for the end of input


@dataclass(frozen=True)
class _Child:
    """A running command and its ends of the streams; *terminal* is the leader's descriptor or -1."""

    process: Process
    stdin: asyncio.StreamWriter
    outputs: list[tuple[asyncio.StreamReader, "asyncssh.SSHWriter[bytes]"]]
    terminal: int = -1


class _TerminalProtocol(asyncio.StreamReaderProtocol):
    """
    Take the EIO of a terminal whose last process has ended for the end of its output.

    A StreamReader that is told of an error gives it before the bytes that it still holds, and they are lost.
    """

    def connection_lost(self, exc: Exception | None) -> None:
        """End the output."""
        super().connection_lost(None)


async def run_session(
    channel: "asyncssh.SSHServerProcess[bytes]", arguments: list[str], environment: dict[str, str]
) -> None:
    """Run the command; as with OpenSSH the channel ends when its output has ended."""
    terminal = channel.get_terminal_type()
    if terminal:
        child = await _on_terminal(channel, arguments, {**environment, "TERM": terminal})
    else:
        child = await _on_pipes(channel, arguments, environment)
    feeding = asyncio.create_task(_feed(channel, child))
    await asyncio.gather(*(_copy(source, sink) for source, sink in child.outputs))
    status = await child.process.wait()
    feeding.cancel()
    child.stdin.close()
    with suppress(OSError):
        channel.exit(status if status >= 0 else 128 - status)


async def _on_pipes(
    channel: "asyncssh.SSHServerProcess[bytes]", arguments: list[str], environment: dict[str, str]
) -> _Child:
    process = await asyncio.create_subprocess_exec(
        *arguments, env=environment, cwd=environment["HOME"], start_new_session=True,
        stdin=PIPE, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip
    stdin, stdout, stderr = process.stdin, process.stdout, process.stderr
    if stdin is None or stdout is None or stderr is None:
        raise OSError("the session's pipes were not made")
    return _Child(process, stdin, [(stdout, channel.stdout), (stderr, channel.stderr)])


async def _on_terminal(
    channel: "asyncssh.SSHServerProcess[bytes]", arguments: list[str], environment: dict[str, str]
) -> _Child:
    """Start the shell on a terminal of its own, which hangs up when the session ends."""
    leader, follower = pty.openpty()
    _resize(leader, channel.get_terminal_size())
    try:
        process = await asyncio.create_subprocess_exec(
            *arguments, env=environment, cwd=environment["HOME"], start_new_session=True,
            stdin=follower, stdout=follower, stderr=follower, preexec_fn=_take_terminal,
        )  # fmt: skip
    finally:
        os.close(follower)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader()
    read_file, write_file = os.fdopen(os.dup(leader), "rb", 0), os.fdopen(leader, "wb", 0)
    await loop.connect_read_pipe(lambda: _TerminalProtocol(reader), read_file)
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), write_file
    )
    writer = asyncio.StreamWriter(transport, protocol, None, loop)
    return _Child(process, writer, [(reader, channel.stdout)], leader)


async def _copy(source: asyncio.StreamReader, sink: "asyncssh.SSHWriter[bytes]") -> None:
    """Copy output to the client until it ends or the client is gone."""
    with suppress(OSError, asyncssh.Error):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
    await _drop(source)


async def _drop(source: asyncio.StreamReader) -> None:
    """Read and forget the rest, so that a job whose client left is not stopped by a full pipe."""
    with suppress(OSError):
        while await source.read(CHUNK):
            pass


async def _feed(channel: "asyncssh.SSHServerProcess[bytes]", child: _Child) -> None:
    """Copy the client's input to the command, and pass on signals and new window sizes."""
    with suppress(OSError, asyncssh.Error):
        while True:
            try:
                data = await channel.stdin.read(CHUNK)
            except asyncssh.TerminalSizeChanged as change:
                _resize(child.terminal, change.term_size)
                continue
            except (asyncssh.SignalReceived, asyncssh.BreakReceived) as event:
                _signal(child.process, getattr(event, "signal", "INT"))
                continue
            if not data:
                break
            child.stdin.write(data)
            await child.stdin.drain()
    if child.terminal < 0:
        child.stdin.close()
    elif channel.is_closing():
        _signal(child.process, "HUP")
    else:
        child.stdin.write(END_OF_FILE)


def _signal(process: Process, name: str) -> None:
    """Send a signal to the session's process group."""
    number = getattr(signal, f"SIG{name}", None)
    if number is not None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def _resize(terminal: int, size: tuple[int, int, int, int]) -> None:
    """Set the window size (columns, rows, width, height) of a terminal."""
    columns, rows = size[:2]
    if terminal >= 0 and columns and rows:
        ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _take_terminal() -> None:
    """Make standard input the controlling terminal of the new session."""
    ioctl(0, termios.TIOCSCTTY, 0)
