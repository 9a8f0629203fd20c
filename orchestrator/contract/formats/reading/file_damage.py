"""Check a single file by the structure that its first bytes announce."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import Any, Dict, Optional

from orchestrator.contract.formats.reading.msgpack import msgpack_damage
from orchestrator.contract.formats.reading.pickled import joblib_damage, pickle_damage
from orchestrator.contract.formats.reading.save_like import save_like
from orchestrator.contract.formats.reading.whole import (
    H5_MAGIC,
    NPY_MAGIC,
    h5_damage,
    json_damage,
    npy_damage,
    safetensors_damage,
    tar_damage,
    zip_damage,
)

_PROTOCOLS = (b"\x02", b"\x03", b"\x04", b"\x05")


def damage_of(path: Path) -> Optional[str]:
    """
    Return what is wrong with a file: empty if it is whole, None if its structure cannot be checked.

    Raise OSError.
    """
    name = path.name.lower()
    with path.open("rb") as file:
        head = file.read(512)
    if not head:
        return f"{path.name} is empty"
    if name.endswith(".safetensors"):
        return safetensors_damage(path)
    # Content before name: torch.save writes a zip under .pt, .pth, .ckpt and .bin.
    if head[:2] == b"PK":
        return zip_damage(path)
    if head[:8] == H5_MAGIC:
        return h5_damage(path)
    if head[:6] == NPY_MAGIC:
        return npy_damage(path)
    # A MessagePack map may begin with the same byte; without a known suffix the pickle protocol decides.
    if head[:1] == b"\x80" and not name.endswith(".msgpack") and ("." in name or head[1:2] in _PROTOCOLS):
        # A pickle that cannot be walked may be joblib's, which puts the bytes of arrays between its instructions.
        damage = pickle_damage(path)
        return damage and joblib_damage(path, damage)
    if head[257:262] == b"ustar" or name.endswith((".tar", ".tar.gz", ".tgz")):
        return tar_damage(path)
    packed = compressed_damage(path, head)
    return packed if packed is not None else _by_name(path, name)


def has_checksums(path: Path) -> bool:
    """Return whether `damage_of` compares every byte of a file with checksums in it: a zip. Raise OSError."""
    with path.open("rb") as file:
        return file.read(2) == b"PK"


def _by_name(path: Path, name: str) -> Optional[str]:
    if name.endswith(".json"):
        return json_damage(path)
    if name.endswith(".msgpack") or ("." not in name and save_like(name)):
        return msgpack_damage(path)
    wanted = name.endswith((".pt", ".pth", ".npz", ".npy", ".keras", ".h5", ".hdf5"))
    return f"{path.name} does not begin as such a file does" if wanted else None


_PIECE = 1 << 20
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_MAY_BE_ZLIB = (".joblib", ".pkl", ".pickle", ".p", ".z")


def compressed_damage(path: Path, head: bytes) -> Optional[str]:
    """
    Return what is wrong with a compressed file that begins with *head*: empty if whole, None if not compressed.

    Raise OSError.
    """
    openers: Dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
    opened = openers.get(head[:2])
    zlibbed = head[:2] in _ZLIB and path.name.lower().endswith(_MAY_BE_ZLIB)
    if opened is None and not zlibbed:
        return None
    try:
        if opened is None:
            return _zlib_damage(path)
        with opened(str(path), "rb") as file:
            while file.read(_PIECE):
                continue
    # A truncated gzip raises EOFError, one with a wrong checksum an OSError without errno.
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return f"{path.name} is cut or broken: {error}"
    return ""


def _zlib_damage(path: Path) -> str:
    unpack = zlib.decompressobj()
    with path.open("rb") as file:
        while True:
            piece = file.read(_PIECE)
            if not piece:
                return "" if unpack.eof else f"{path.name} is cut"
            unpack.decompress(piece)
