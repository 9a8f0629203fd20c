"""Run startup and shutdown scripts like Google's script runner, copying lines to the serial port."""

import asyncio
import os
import shlex
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

MAX_LINE = 64 * 1024  # bytes; the real runner copies nothing after a longer line (docs/facts.md 2.4)
_COPYING: set["asyncio.Task[None]"] = set()  # the event loop itself holds only weak references to tasks


class Serial:
    """The file that represents serial port 1."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def line(self, text: str | bytes) -> None:
        """Write one line at once, so that a kill loses nothing that was printed."""
        data = text.encode() if isinstance(text, str) else text
        with self._path.open("ab", buffering=0) as file:
            file.write(data.rstrip(b"\r\n") + b"\r\n")


async def run_script(
    key: str, text: str, *, serial: Serial, environment: Mapping[str, str], folder: Path, temporary: Path
) -> int:
    """
    Run the script *text* of attribute *key*; return its exit status.

    It is written with mode 0755 and given to `/bin/bash -c`, so that its own first line applies. A failure is
    reported on the serial port and the boot continues (texts: docs/facts.md 2.4).
    """
    with tempfile.TemporaryDirectory(prefix="metadata-scripts", dir=temporary) as name:
        file = Path(name) / key
        file.write_text(text.lstrip())
        file.chmod(0o755)
        process, output = await _start(file, environment, folder)
        copying = asyncio.create_task(_copy(output, key, serial))
        _COPYING.add(copying)
        copying.add_done_callback(_COPYING.discard)
        status = await process.wait()
        # Wait only briefly, since a daemon started by the script may hold the pipe forever.
        await asyncio.wait({copying}, timeout=0.5)
    if status:
        reason = f"exit status {status}" if status > 0 else f"signal: {_signal_name(-status)}"
        serial.line(f'Script "{key}" failed with error: {reason}')
    else:
        serial.line(f"{key} exit status 0")
    return status


async def _start(
    file: Path, environment: Mapping[str, str], folder: Path
) -> tuple[asyncio.subprocess.Process, asyncio.StreamReader]:
    """Start the script on our own pipe; with asyncio's, `wait` would wait for all holders of the pipe."""
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader(limit=MAX_LINE)
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(ours, "rb", 0))
    try:
        process = await asyncio.create_subprocess_exec(
            *("/bin/bash", "-c", shlex.quote(str(file))),
            env=dict(environment),
            cwd=folder,
            start_new_session=True,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
    finally:
        os.close(theirs)
    return process, reader


async def _copy(stream: asyncio.StreamReader, key: str, serial: Serial) -> None:
    """Copy lines to the serial port until one is too long; the rest is discarded."""
    try:
        while line := await stream.readline():
            serial.line(f"{key}: ".encode() + line)
    except ValueError:
        while await stream.read(MAX_LINE):
            pass


def _signal_name(number: int) -> str:
    """Return the signal's description in lower case, for example "killed"."""
    return (signal.strsignal(number) or str(number)).lower()
