"""Build the agent's zipapp, `agent.pyz`: the same sources give the same bytes, so its sha256 names it."""

import hashlib
import zipfile
from functools import cache
from io import BytesIO
from pathlib import Path

from orchestrator.contract.replacing import replacing

PACKAGE = Path(__file__).parents[1]
ROOMS = ("agent", "contract")
SHEBANG = b"#!/usr/bin/env python3\n"
# Any fixed date would do; this is the earliest that a zip file can hold.
EPOCH = (1980, 1, 1, 0, 0, 0)
MAIN = PACKAGE / "agent" / "zip_main.py"


def build(path: Path) -> str:
    """
    Write the zipapp to *path* and return its sha256 in hex.

    It holds the `*.py` files of `agent` and `contract` below an empty `orchestrator`, in order of their names
    and with one fixed date. Files are stored, not compressed, since compressors differ between machines.
    """
    data = SHEBANG + _archive()
    with replacing(path, 0o755) as file:
        file.write(data)
    return hashlib.sha256(data).hexdigest()


# Once for each process: a watcher whose package is upgraded below it goes on with the agent that it knows.
@cache
def _archive() -> bytes:
    sources = [one for room in ROOMS for one in sorted((PACKAGE / room).rglob("*.py"))]
    members = {f"orchestrator/{one.relative_to(PACKAGE).as_posix()}": one.read_bytes() for one in sources}
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, content in {
            "__main__.py": MAIN.read_bytes(),
            "orchestrator/__init__.py": b"",
            **members,
        }.items():
            entry = zipfile.ZipInfo(name, EPOCH)
            # Fixed too: Python sets it by operating system, so the digest would differ between computers.
            entry.create_system = 3
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content)
    return buffer.getvalue()
