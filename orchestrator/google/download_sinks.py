"""What takes the bytes of a download: up to a limit, or only their sum."""

import hashlib
from typing import BinaryIO


class FullError(Exception):
    """Say that an object is longer than what is read of it."""


class Taken:
    """Take a download's bytes, up to a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.data = bytearray()

    def write(self, data: bytes) -> int:
        """Keep the bytes. Raise FullError when they are too many."""
        if len(self.data) + len(data) > self._limit:
            raise FullError
        self.data += data
        return len(data)


class Digest:
    """Take a download's bytes and keep their sha256; *copy* is a file that gets the bytes too."""

    def __init__(self, copy: BinaryIO | None = None) -> None:
        self._sum = hashlib.sha256()
        self._copy = copy

    def write(self, data: bytes) -> int:
        """Count the bytes in."""
        self._sum.update(data)
        if self._copy is not None:
            self._copy.write(data)
        return len(data)

    def hex(self) -> str:
        """Return the digest."""
        return self._sum.hexdigest()
