"""Where bytes and records live: in memory for simulations, in a folder for the daemon."""

import hashlib
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from orchestrator.private_folders import private_folder

Record = dict[str, Any]
BLOCK = 1 << 20  # bytes read at a time, so that a large blob is never held twice


class MemoryBlobs:
    """Keep everything in memory; what was appended in one go is never copied."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes | bytearray] = {}
        self._records: dict[tuple[str, str], Record] = {}

    def append(self, blob: str, data: bytes) -> int:
        held = self._blobs.get(blob)
        if held is None:
            self._blobs[blob] = data
        else:
            grown = held if isinstance(held, bytearray) else bytearray(held)
            grown += data
            self._blobs[blob] = grown
        return len(self._blobs[blob])

    def size(self, blob: str) -> int:
        return len(self._blobs.get(blob, b""))

    def read(self, blob: str, start: int, end: int) -> bytes:
        with memoryview(self._blobs[blob]) as view:
            whole = start == 0 and end >= len(view)
            held = self._blobs[blob]
            return held if whole and isinstance(held, bytes) else bytes(view[start:end])

    def remove(self, blob: str) -> None:
        self._blobs.pop(blob, None)

    def blobs(self) -> list[str]:
        return list(self._blobs)

    def save(self, kind: str, key: str, record: Record) -> None:
        self._records[kind, key] = record

    def forget(self, kind: str, key: str) -> None:
        self._records.pop((kind, key), None)

    def records(self, kind: str) -> list[Record]:
        return [record for (its_kind, _), record in self._records.items() if its_kind == kind]


class FolderBlobs:
    """
    Keep everything below a folder, so that a killed process loses nothing it has acknowledged.

    A record is written beside its place and renamed into it. Nothing is synced to the disk: a
    killed process is survived, a power cut is not. One process at a time may own the folder.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = path / "blobs"
        private_folder(self._data)
        shutil.rmtree(path / "half", ignore_errors=True)
        (path / "half").mkdir()

    def append(self, blob: str, data: bytes) -> int:
        """Add *data* to the end of a blob, which is created at need; return its size."""
        with (self._data / blob).open("ab") as file:
            file.write(data)
            return file.tell()

    def size(self, blob: str) -> int:
        """Return the size in bytes; 0 for a blob that does not exist."""
        try:
            return (self._data / blob).stat().st_size
        except FileNotFoundError:
            return 0

    def read(self, blob: str, start: int, end: int) -> bytes:
        """Return the bytes from *start* up to but not including *end*."""
        with (self._data / blob).open("rb") as file:
            file.seek(start)
            return file.read(end - start)

    def remove(self, blob: str) -> None:
        """Forget a blob; an unknown one is no error."""
        (self._data / blob).unlink(missing_ok=True)

    def blobs(self) -> list[str]:
        return [path.name for path in self._data.iterdir()]

    def save(self, kind: str, key: str, record: Record) -> None:
        """Store a record under (*kind*, *key*), replacing the one before at once or not at all."""
        place = self._place(kind, key)
        place.parent.mkdir(parents=True, exist_ok=True)
        half = self._path / "half" / place.name
        half.write_text(json.dumps(record), encoding="utf-8")
        half.replace(place)

    def forget(self, kind: str, key: str) -> None:
        """Drop a record; an unknown one is no error."""
        self._place(kind, key).unlink(missing_ok=True)

    def records(self, kind: str) -> list[Record]:
        """Return every record of *kind*, in no order."""
        files = sorted((self._path / kind).glob("*.json"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _place(self, kind: str, key: str) -> Path:
        # Object names may be longer than a file name and hold any character, hence the digest.
        return self._path / kind / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


Blobs = MemoryBlobs | FolderBlobs
"""What stores growing blobs and small JSON records. A blob counts only while a record names it."""


def pieces(blobs: Blobs, blob: str) -> Iterator[bytes]:
    """Yield a blob in blocks of 1 MiB."""
    size = blobs.size(blob)
    for start in range(0, size, BLOCK):
        yield blobs.read(blob, start, min(start + BLOCK, size))
