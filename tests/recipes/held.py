"""
Run a script of a recipe and hold it between two steps: python held.py train.py FLAGS.

HELD_AT names a file with a number: from that step on the script waits where it would pause after a step.
So a test strikes at the step that it wants, however fast or slow the computer is. Without the file nothing
waits. SIGTERM ends the waiting; what the script does then is slow, because some save only seconds later.
"""

import contextlib
import json
import os
import runpy
import signal
import socket
import sys
import time
from pathlib import Path

nap = time.sleep
received, wake = socket.socketpair()
reported: list[int] = []


def number(variable: str, default: float) -> float:
    """Return the number in a file of plain or JSON text, *default* when there is none."""
    try:
        content = json.loads(Path(os.environ[variable]).read_text())
    except (KeyError, OSError):
        return default
    return float(content["step"] if isinstance(content, dict) else content)


def waiting() -> bool:
    """Return whether the script has to wait: it has reached the step, and no stop was requested."""
    with contextlib.suppress(BlockingIOError):
        reported.extend(received.recv(4096))
    step, limit = number("TPUCTL_PROGRESS_FILE", 0), number("HELD_AT", float("inf"))
    return signal.SIGTERM not in reported and step >= limit


def held(seconds: float) -> None:
    """Stand in for time.sleep: what the script itself calls waits, what its libraries call does not."""
    if sys._getframe(1).f_globals.get("__name__") == "__main__":
        while waiting():
            nap(0.02)
        seconds = max(seconds, 0.5) if signal.SIGTERM in reported else seconds
    nap(seconds)


if __name__ == "__main__":
    for end in (received, wake):
        end.setblocking(False)
    # Every signal with a handler in Python leaves its number here, whoever sets the handler, and when.
    signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    time.sleep = held
    sys.argv.pop(0)
    sys.path[0] = str(Path(sys.argv[0]).resolve().parent)
    runpy.run_path(sys.argv[0], run_name="__main__")
