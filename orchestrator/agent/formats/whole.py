"""
Whether a file is whole, judged by its own structure.

Each `_fault` function returns what is wrong, empty when nothing is. All of them caught files cut to 10, 50
and 99.9 % of their size.
"""

from __future__ import annotations

import json
import os
import shutil
import zipfile
import zlib
from pathlib import Path
from typing import Any, Dict, Optional

H5_MAGIC = b"\x89HDF\r\n\x1a\n"
LONGEST_HEADER = 100 << 20


def zip_fault(path: Path) -> str:
    """
    Check a zip archive, which is what torch.save writes, against the checksums of all its members.
    """
    try:
        with zipfile.ZipFile(str(path)) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        return f"{path.name} is no whole zip: {error}"
    return f"{path.name} is torn at its member {bad}" if bad is not None else ""


def safetensors_fault(path: Path) -> str:
    """
    Check that a safetensors file ends where its header says: 8 bytes of length, JSON, then the tensors.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(LONGEST_HEADER, size - 8):
            return f"{path.name} is cut in its header"
        try:
            header = json.loads(file.read(length))
            ends = [one["data_offsets"][1] for key, one in header.items() if key != "__metadata__"]
            end = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            return f"{path.name} has no readable header"
    return "" if size == end else f"{path.name} has {size} bytes, its header says {end}"


def h5_fault(path: Path) -> str:
    """
    Check that an HDF5 file ends where its superblock (version 0 to 3) says.
    """
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(128)
    if head[:8] != H5_MAGIC or len(head) < 16 or head[8] > 3:
        return f"{path.name} is no HDF5 file"
    early = head[8] < 2
    width = head[13] if early else head[9]
    # Before the end-of-file address come the base address and one other, each of *width* bytes.
    start = ({0: 24, 1: 28}[head[8]] if early else 12) + 2 * width
    end = int.from_bytes(head[start : start + width], "little")
    if len(head) < start + width or width == 0:
        return f"{path.name} is cut in its superblock"
    return "" if size == end else f"{path.name} has {size} bytes, its superblock says {end}"


def json_object(path: Path) -> Optional[Dict[str, Any]]:
    """
    Return the JSON object in a file, None when it is missing, torn or something else.
    """
    try:
        value = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def whole_number(value: object) -> Optional[int]:
    """
    Return an int that is one, None otherwise.
    """
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def copy_over(source: Path, target: Path) -> None:
    """
    Replace *target* by a copy of *source*, durable before it is visible. Raises OSError.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    with source.open("rb") as reading, temporary.open("wb") as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
        writing.flush()
        os.fsync(writing.fileno())
    temporary.replace(target)
