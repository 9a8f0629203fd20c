"""
Check by its own structure whether a file is whole.

Each `_damage` function returns what is wrong, empty if nothing is. All were tested to catch files cut to 10,
50 and 99.9 % of their size.
"""

from __future__ import annotations

import json
import math
import re
import shutil
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import Optional

from orchestrator.contract.replacing import replacing

H5_MAGIC = b"\x89HDF\r\n\x1a\n"
NPY_MAGIC = b"\x93NUMPY"
MAX_HEADER = 100 << 20


def zip_damage(path: Path) -> str:
    """Check a zip archive, the format of torch.save, against the checksums of all its members."""
    try:
        with zipfile.ZipFile(str(path)) as archive:
            # Reads everything: the directory at the end of a zip proves nothing about the bytes before it.
            bad = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError) as error:
        return f"{path.name} is not a complete zip: {error}"
    return f"{path.name} is torn at its member {bad}" if bad is not None else ""


def safetensors_damage(path: Path) -> str:
    """Check that a safetensors file ends where its header says: 8 bytes of length, JSON, then the tensors."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(MAX_HEADER, size - 8):
            return f"{path.name} is cut in its header"
        try:
            header = json.loads(file.read(length))
            ends = [one["data_offsets"][1] for key, one in header.items() if key != "__metadata__"]
            end = 8 + length + max(ends, default=0)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
            return f"{path.name} has no readable header"
    return "" if size == end else f"{path.name} has {size} bytes, its header says {end}"


def h5_damage(path: Path) -> str:
    """Check that an HDF5 file ends where its superblock (version 0 to 3) says."""
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


def npy_damage(path: Path) -> str:
    """Check that a numpy array is as long as its header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        head = file.read(12)
        wide = head[6:7] > b"\x01"
        start = 12 if wide else 10
        if head[:6] != NPY_MAGIC or len(head) < start:
            return f"{path.name} is not a numpy array"
        length = int.from_bytes(head[8:start], "little")
        file.seek(start)
        # The file claims this length itself, and no real header is that long.
        header = file.read(min(length, 1 << 16)).decode("latin-1")
    if len(header) < min(length, 1 << 16):
        return f"{path.name} is cut in its header"
    items = _npy_items(header)
    if items is None:
        # Objects and records are longer than the header says.
        return "" if size > start + length else f"{path.name} has no data"
    end = start + length + items
    return "" if size == end else f"{path.name} has {size} bytes, its header says {end}"


def _npy_items(header: str) -> Optional[int]:
    """Return the size of an array's items in bytes, None for a type that is not a plain number."""
    kind = re.search(r"'descr': '[<>|=]?[biufcSV?](\d+)'", header)
    shape = re.search(r"'shape': \(([^)]*)\)", header)
    if kind is None or shape is None:
        return None
    total = int(kind[1])
    for part in shape[1].split(","):
        if part.strip():
            total *= int(part)
    return total


def npy_integer(data: bytes) -> Optional[int]:
    """Return the single integer in a numpy array, also if stored as a float; None for anything else."""
    start = 12 if data[6:7] > b"\x01" else 10
    length = int.from_bytes(data[8:start], "little")
    header = data[start : start + length].decode("latin-1")
    body = data[start + length :]
    kind = re.search(r"'descr': '[<|=]([iuf])([1248])'", header)
    if data[:6] != NPY_MAGIC or kind is None or len(body) != int(kind[2]):
        return None
    if kind[1] == "f":
        form = {"2": "<e", "4": "<f", "8": "<d"}.get(kind[2])
        number = struct.unpack(form, body)[0] if form else math.nan
        return int(number) if math.isfinite(number) and number == int(number) else None
    return int.from_bytes(body, "little", signed=kind[1] == "i")


def tar_damage(path: Path) -> str:
    """Check a tar archive, compressed or not, to its end."""
    try:
        with tarfile.open(str(path)) as archive:
            members = archive.getmembers()
    except (tarfile.TarError, zlib.error, EOFError, ValueError) as error:
        return f"{path.name} is not a complete tar archive: {error}"
    end = max((one.offset_data + one.size for one in members), default=0)
    packed = path.name.lower().endswith(("gz", "bz2", "xz"))
    return f"{path.name} is cut" if not members or (not packed and end > path.stat().st_size) else ""


def json_damage(path: Path) -> str:
    """Check that a file is one JSON value, or one in each line."""
    data = path.read_bytes()
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        try:
            for line in data.splitlines():
                json.loads(line or b"0")
        except (ValueError, RecursionError):
            return f"{path.name} is not complete JSON"
    return ""


def copy_over(source: Path, target: Path) -> None:
    """Replace *target* by a copy of *source*. Raise OSError."""
    with source.open("rb") as reading, replacing(target) as writing:
        shutil.copyfileobj(reading, writing, 1 << 20)
