"""Walk a MessagePack file, flax's format before Orbax: is it whole, and which numbers are in its map."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, Dict, Optional

_FIXED = {
    0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8,
    0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8, 0xD4: 2, 0xD5: 3, 0xD6: 5, 0xD7: 9, 0xD8: 17,
}  # fmt: skip
_SIZED = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1),
          0xD9: (1, 0), 0xDA: (2, 0), 0xDB: (4, 0)}  # fmt: skip
_COUNTED = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
_MOST = 10_000_000


def msgpack_damage(path: Path) -> str:
    """Return what is wrong with the file, which must hold one map and nothing after it. Raise OSError."""
    size = path.stat().st_size
    try:
        with path.open("rb") as file:
            walk = _Walk(file, size)
            if walk.opens() != "map":
                return f"{path.name} is no MessagePack of a state"
            file.seek(0)
            walk.skip(1)
            end = file.tell()
    except ValueError as error:
        return f"{path.name} is cut: {error}"
    return "" if end == size else f"{path.name} has {size} bytes, its MessagePack ends at {end}"


def msgpack_numbers(path: Path) -> Dict[str, int]:
    """Return the integers of the outermost map, by key. Raise OSError and ValueError."""
    found: Dict[str, int] = {}
    with path.open("rb") as file:
        walk = _Walk(file, path.stat().st_size)
        for _ in range(walk.map_length()):
            key, value = walk.text(), walk.integer()
            if key is not None and value is not None:
                found[key] = value
    return found


class _Walk:
    """Step over values without storing them. Raise ValueError if the file ends too early."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self._size = size

    def opens(self) -> str:
        """Return "map" if the next value is a map, else an empty text."""
        code = self._byte()
        return "map" if 0x80 <= code <= 0x8F or code in (0xDE, 0xDF) else ""

    def skip(self, count: int) -> None:
        """Step over *count* values with everything in them."""
        walked = 0
        # Counted instead of recursive, because the file determines the depth.
        while count:
            count += self._value() - 1
            # A few bytes can announce billions of values.
            walked += 1
            if walked > _MOST:
                raise ValueError("too many values")

    def map_length(self) -> int:
        """Return the number of pairs in the next value, a map."""
        code = self._byte()
        if 0x80 <= code <= 0x8F:
            return code & 15
        if code not in (0xDE, 0xDF):
            raise ValueError("no map")
        return self._number(_COUNTED[code][0])

    def text(self) -> Optional[str]:
        """Return the next value if it is a short text, else step over it."""
        place = self._file.tell()
        code = self._byte()
        length = code & 31 if 0xA0 <= code <= 0xBF else self._number(1) if code == 0xD9 else None
        if length is None:
            self._file.seek(place)
            self.skip(1)
            return None
        return self._file.read(length).decode("utf-8", "replace")

    def integer(self) -> Optional[int]:
        """Return the next value if it is a non-negative integer, else step over it."""
        place = self._file.tell()
        code = self._byte()
        if code < 0x80:
            return code
        if 0xCC <= code <= 0xCF:
            return self._number(1 << (code - 0xCC))
        self._file.seek(place)
        self.skip(1)
        return None

    def _value(self) -> int:
        """Step over one value's head and bytes; return how many values follow inside it."""
        code = self._byte()
        if code < 0x80 or code >= 0xE0:
            return 0
        if code <= 0x8F:
            return 2 * (code & 15)
        if code <= 0x9F:
            return code & 15
        if code <= 0xBF:
            return self._over(code & 31)
        if code in _FIXED:
            return self._over(_FIXED[code])
        if code in _SIZED:
            width, more = _SIZED[code]
            return self._over(self._number(width) + more)
        if code in _COUNTED:
            width, each = _COUNTED[code]
            return each * self._number(width)
        raise ValueError(f"no such type: {code:#x}")

    def _over(self, length: int) -> int:
        if self._file.tell() + length > self._size:
            raise ValueError("it ends within a value")
        self._file.seek(length, os.SEEK_CUR)
        return 0

    def _byte(self) -> int:
        return self._number(1)

    def _number(self, width: int) -> int:
        data = self._file.read(width)
        if len(data) < width:
            raise ValueError("it ends within a value")
        return int.from_bytes(data, "big")
