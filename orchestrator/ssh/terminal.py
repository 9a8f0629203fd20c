"""Give the user a shell on a machine: with a terminal or, without one, over plain pipes."""

import contextlib
import os
import select
import sys
import termios
import threading
import tty
from collections.abc import Iterator
from typing import TYPE_CHECKING

from orchestrator.ssh.run import exit_code, read

if TYPE_CHECKING:
    import paramiko

    from orchestrator.ssh.connect.connection import Connection

_CHUNK = 32 * 1024


def shell(connection: "Connection", command: str | None = None) -> int:
    """
    Connect standard input and output to a shell, or to *command*, on the machine; return its exit code.

    With a terminal, it is in raw mode and size changes are passed on. Raise RemoteError when the connection
    is lost.
    """
    terminal = sys.stdin.isatty() and sys.stdout.isatty()
    with connection:
        channel = connection.execute(command or "", _terminal() if terminal else None)
        over = threading.Event()
        threads = [
            threading.Thread(target=_inward, args=(channel, terminal, over), daemon=True),
            threading.Thread(target=_errors, args=(channel,), daemon=True),
        ]
        with _raw_mode(terminal):
            for thread in threads:
                thread.start()
            for data in read(connection, channel):
                _write(sys.stdout.fileno(), data)
            code = exit_code(connection, channel)
            over.set()
            for thread in threads:
                thread.join()
        return code


def _terminal() -> tuple[str, int, int]:
    size = os.get_terminal_size(sys.stdin.fileno())
    return os.environ.get("TERM", "xterm"), size.columns, size.lines


def _inward(channel: "paramiko.Channel", terminal: bool, over: threading.Event) -> None:
    """Send the user's input and changes of the window size until the session ends."""
    size = _terminal() if terminal else None
    with contextlib.suppress(OSError, EOFError):
        while not over.is_set() and not channel.closed:
            now = _terminal() if terminal else None
            if now is not None and now != size:
                channel.resize_pty(now[1], now[2])
                size = now
            # Poll every 0.2 s for a new window size: only the main thread can receive SIGWINCH.
            if not select.select([sys.stdin.fileno()], [], [], 0.2)[0]:
                continue
            data = os.read(sys.stdin.fileno(), _CHUNK)
            if not data:
                channel.shutdown_write()
                return
            channel.sendall(data)


def _errors(channel: "paramiko.Channel") -> None:
    while data := channel.recv_stderr(_CHUNK):
        _write(sys.stderr.fileno(), data)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextlib.contextmanager
def _raw_mode(wanted: bool) -> Iterator[None]:
    """Put the terminal into raw mode for the block; restore it however the block ends."""
    if not wanted:
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    try:
        tty.setraw(descriptor)
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
