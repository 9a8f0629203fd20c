"""
Large objects that have only a crc32c come by the stock gcloud, which Google's images carry.

It compares that sum; the standard library cannot compute it at a speed that is any use.
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
    Say whether gcloud should move this object.

    gcloud reads `*?[]` in a name as wildcards and `#` as a generation, so such names do not go that way.
    """
    return (
        size > LARGE and not any(sign in name for sign in _WILDCARDS) and shutil.which("gcloud") is not None
    )


def copy(source: str, target: str, size: int) -> None:
    """
    Copy between a path and a gs:// address; raises TransientError with gcloud's last words.

    The call is cut off after two minutes plus one second for each MiB.
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
