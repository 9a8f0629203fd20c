"""A stand-in for unattended-upgrades, which holds the package manager's locks when a machine is new."""

import ctypes
import fcntl
import os
import signal
from contextlib import suppress
from pathlib import Path

LOCKS = (
    "var/lib/dpkg/lock-frontend",
    "var/lib/dpkg/lock",
    "var/lib/apt/lists/lock",
    "var/cache/apt/archives/lock",
)
"""What dpkg and apt lock, below the root of the machine's files (docs/facts.md 5.5)."""
HOLDER = b"unattended-upgr"
PR_SET_NAME = 15  # linux/prctl.h


def hold_locks(files: Path, state: Path, seconds: float) -> None:
    """
    Lock as dpkg and apt do, by fcntl(2), in a process of its own, for *seconds* of a machine's first boot.

    When this returns the locks are held. To be called before there are threads: it forks.
    """
    mark = state / "upgraded"
    if seconds <= 0 or mark.exists():
        return
    mark.touch()
    ready, told = os.pipe()
    child = os.fork()
    if not child:
        # The grandchild is an orphan, which the machine's first process reaps.
        with suppress(BaseException):
            if not os.fork():
                os.close(ready)
                _hold(files, told, seconds)
        os._exit(0)
    os.close(told)
    os.waitpid(child, 0)
    os.read(ready, 1)
    os.close(ready)


def _hold(files: Path, told: int, seconds: float) -> None:
    """Lock everything, say so, and end by SIGALRM, or when the machine goes."""
    os.setsid()
    ctypes.CDLL(None).prctl(PR_SET_NAME, HOLDER, 0, 0, 0)
    for name in LOCKS:
        path = files / name
        path.parent.mkdir(parents=True, exist_ok=True)
        fcntl.lockf(os.open(path, os.O_RDWR | os.O_CREAT, 0o640), fcntl.LOCK_EX)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    os.write(told, b".")
    os.close(told)
    while True:
        signal.pause()
