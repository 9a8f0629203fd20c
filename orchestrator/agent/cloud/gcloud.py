"""
Copy large objects that have only a crc32c with the gcloud that Google's images include.

gcloud verifies that sum; the standard library cannot compute it fast enough.
"""

from __future__ import annotations

import shutil
import subprocess

from orchestrator.contract.machine_errors import TransientError

LARGE = 32 << 20
SLOWEST = 1 << 20
_WILDCARDS = "*?[]#"


def wanted_for(name: str, size: int) -> bool:
    """
    Return whether gcloud should copy this object.

    gcloud reads `*?[]` in a name as wildcards and `#` as a generation, so it never gets such names.
    """
    return (
        size > LARGE and not any(sign in name for sign in _WILDCARDS) and shutil.which("gcloud") is not None
    )


def copy(source: str, target: str, size: int) -> None:
    """
    Copy between a path and a gs:// address. Raise TransientError with gcloud's last message.

    The time limit is two minutes plus one second for each MiB of *size*.
    """
    command = ["gcloud", "storage", "cp", "--quiet", source, target]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=120 + size / SLOWEST,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise TransientError(f"gcloud storage cp: {error}") from error
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"]
        raise TransientError(f"gcloud storage cp left with {done.returncode}: {words[-1][:300]}")
