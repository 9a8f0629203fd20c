"""
Be the `__main__` of agent.pyz: run the agent from an unpacked copy of it, beside which Python keeps its bytecode.

From the archive itself Python compiles every module at every start, which was half of the computing of a start.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

PREFIX = "unpacked-"
BOOT = Path("/proc/sys/kernel/random/boot_id")
MODULE = "orchestrator/agent/__main__.py"


def unpacked(archive: Path) -> str:
    """Return the folder with a copy of *archive*, made at the first start of a boot; "" if there is none."""
    try:
        # A copy that a power cut has left half written is of an earlier boot.
        boot = f"{PREFIX}{BOOT.read_text(encoding='ascii')[:8]}-"
        copy = archive.with_name(boot + hashlib.sha256(archive.read_bytes()).hexdigest()[:16])
        if not copy.is_dir():
            _unpack(archive, copy, boot)
    except (OSError, zipfile.BadZipFile):
        return ""
    # It may be another user's, who alone may read it.
    return str(copy) if os.access(str(copy / MODULE), os.R_OK) else ""


def _unpack(archive: Path, copy: Path, boot: str) -> None:
    new = Path(tempfile.mkdtemp(prefix=boot, dir=str(copy.parent)))
    try:
        with zipfile.ZipFile(str(archive)) as held:
            held.extractall(str(new))
        with contextlib.suppress(OSError):  # Another start was first.
            new.rename(copy)
    finally:
        shutil.rmtree(str(new), ignore_errors=True)
    for one in copy.parent.glob(f"{PREFIX}*"):
        # Not those of this boot: an agent of before a push still starts programs from its own.
        if not one.name.startswith(boot):
            shutil.rmtree(str(one), ignore_errors=True)


if __name__ == "__main__":
    # Without a copy the archive itself serves.
    sys.path[0] = unpacked(Path(sys.path[0])) or sys.path[0]
    from orchestrator.agent.__main__ import main

    sys.exit(main())
