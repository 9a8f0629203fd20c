"""Run startup and shutdown scripts as Google's script runner does, line by line to the serial port."""

import asyncio
import os
import shlex
import signal
import tempfile
from collections.abc import Mapping
from pathlib import Path

LONGEST_LINE = 64 * 1024  # bytes; the real runner copies nothing after a longer line (docs/facts.md 2.4)
_COPYING: set["asyncio.Task[None]"] = set()  # the event loop itself holds tasks only weakly


class Serial:
    """Append lines to the file that stands for serial port 1."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def line(self, text: str | bytes) -> None:
        """Write one line at once, so that a kill loses nothing already printed."""
        data = text.encode() if isinstance(text, str) else text
        with self._path.open("ab", buffering=0) as file:
            file.write(data.rstrip(b"\r\n") + b"\r\n")


async def run_script(
    key: str, text: str, *, serial: Serial, environment: Mapping[str, str], folder: Path, temporary: Path
) -> int:
    """
    Run the script *text* of attribute *key* and return its exit status.

    It is written with mode 0755 and given to `/bin/bash -c`, so its own first line rules. A failure
    is reported on the serial port and the boot goes on (texts: docs/facts.md 2.4).
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
        # A daemon that the script left behind may hold the pipe for ever: do not wait for it.
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
    """Start the script on a pipe of our own: asyncio's would make `wait` wait for the pipe's last holder."""
    ours, theirs = os.pipe()
    reader = asyncio.StreamReader(limit=LONGEST_LINE)
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
    """Copy lines to the serial port until one is too long; the rest is read and dropped."""
    try:
        while line := await stream.readline():
            serial.line(f"{key}: ".encode() + line)
    except ValueError:
        while await stream.read(LONGEST_LINE):
            pass


def _signal_name(number: int) -> str:
    """Return the signal's description in lower case, for example "killed"."""
    return (signal.strsignal(number) or str(number)).lower()
