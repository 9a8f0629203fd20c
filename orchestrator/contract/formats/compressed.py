"""Whether a compressed file is whole: gzip, bzip2, xz, and the zlib that joblib writes."""

from __future__ import annotations

import bz2
import gzip
import lzma
import zlib
from pathlib import Path
from typing import Any, Dict, Optional

_PIECE = 1 << 20
_ZLIB = (b"\x78\x01", b"\x78\x5e", b"\x78\x9c", b"\x78\xda")
_MAY_BE_ZLIB = (".joblib", ".pkl", ".pickle", ".p", ".z")


def compressed_fault(path: Path, head: bytes) -> Optional[str]:
    """
    Return what is wrong with a file that begins with *head*, empty when it is whole, None for another kind.

    Raises OSError.
    """
    openers: Dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZ": bz2.open, b"\xfd7": lzma.open}
    opened = openers.get(head[:2])
    zlibbed = head[:2] in _ZLIB and path.name.lower().endswith(_MAY_BE_ZLIB)
    if opened is None and not zlibbed:
        return None
    try:
        if opened is None:
            return _zlib_fault(path)
        with opened(str(path), "rb") as file:
            while file.read(_PIECE):
                continue
    # A gzip that is cut raises EOFError, one with a broken checksum an OSError without a number.
    except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return f"{path.name} is cut or broken: {error}"
    return ""


def _zlib_fault(path: Path) -> str:
    unpack = zlib.decompressobj()
    with path.open("rb") as file:
        while True:
            piece = file.read(_PIECE)
            if not piece:
                return "" if unpack.eof else f"{path.name} is cut"
            unpack.decompress(piece)
