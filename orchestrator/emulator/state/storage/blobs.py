"""Store bytes and records: in memory for simulations, in a folder for the daemon."""

import errno
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

from orchestrator.private_folders import private_folder

Record = dict[str, Any]
PIECES = 1024  # buffers per call: IOV_MAX on Linux
BLOCK = 1 << 20  # bytes read at a time, so that a large blob is never in memory twice


class OpenBlob:
    """Bytes of a blob that stay readable after its removal; they are read from the disk in blocks."""

    def __init__(self, files: Sequence[tuple[Path, int, int]]) -> None:
        self._closing = ExitStack()
        self._spans: list[tuple[BinaryIO, int, int]] = []
        try:
            for path, start, end in files:
                self._spans.append((self._closing.enter_context(path.open("rb", buffering=0)), start, end))
        except OSError:
            self._closing.close()
            raise
        self.size = sum(end - start for _, start, end in self._spans)

    def pieces(self) -> Iterator[bytes]:
        """Yield all bytes once, then close the files."""
        with self._closing:
            for file, start, end in self._spans:
                at = start
                while at < end:
                    piece = os.pread(file.fileno(), min(BLOCK, end - at), at)
                    if not piece:
                        raise OSError(f"{file.name} is shorter than it was")
                    at += len(piece)
                    yield piece


class MemoryBlobs:
    """Keeps everything in memory; data appended in one call is never copied."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes | bytearray] = {}
        self._records: dict[tuple[str, str], Record] = {}

    def append(self, blob: str, *pieces: bytes) -> int:
        held, data = self._blobs.get(blob), pieces[0] if len(pieces) == 1 else b"".join(pieces)
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

    def join(self, blob: str, parts: Sequence[str]) -> None:
        """Make a new blob from the bytes of *parts*, in order."""
        self._blobs[blob] = b"".join(self._blobs[part] for part in parts)

    def open(self, _blob: str, _start: int, _end: int) -> OpenBlob | None:
        """Return None: what is in memory need not be read in blocks."""
        return None

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
    Keeps everything below a folder, so that a killed process loses nothing that it has acknowledged.

    A record is written to a temporary file and renamed. Nothing is synced, so it survives a killed process,
    but not a power loss. One process at a time may own the folder. A blob is a file or, if it was joined from
    others, a folder with hard links to their files, without copying bytes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = path / "blobs"
        private_folder(self._data)
        # Records that a killed process had begun to write.
        shutil.rmtree(path / "half", ignore_errors=True)
        (path / "half").mkdir()

    def append(self, blob: str, *data: bytes) -> int:
        """Append *data* to a blob, creating it if needed; return its size."""
        with (self._data / blob).open("ab", buffering=0) as file:
            for start in range(0, len(data), PIECES):
                wanted = data[start : start + PIECES]
                if os.writev(file.fileno(), wanted) < sum(map(len, wanted)):
                    raise OSError(errno.ENOSPC, "the disk took only some of the bytes", file.name)
            return file.tell()

    def size(self, blob: str) -> int:
        """Return the size in bytes, 0 for a blob that does not exist."""
        try:
            return sum(path.stat().st_size for path in self._files(blob))
        except FileNotFoundError:
            return 0

    def read(self, blob: str, start: int, end: int) -> bytes:
        """Return the bytes from *start* to before *end*."""
        return b"".join(OpenBlob(self._spans(blob, start, end)).pieces())

    def open(self, blob: str, start: int, end: int) -> OpenBlob | None:
        """Return the bytes from *start* to before *end* for reading in blocks; None if there are few."""
        return OpenBlob(self._spans(blob, start, end)) if end - start > BLOCK else None

    def join(self, blob: str, parts: Sequence[str]) -> None:
        """Make a new blob from the bytes of *parts*, in order; the parts may be removed afterwards."""
        folder = self._data / blob
        folder.mkdir()
        for number, path in enumerate(path for part in parts for path in self._files(part)):
            # A joined part is never appended to again, so both names may share the file.
            os.link(path, folder / f"{number:06d}")

    def remove(self, blob: str) -> None:
        """Remove a blob; an unknown one is no error."""
        path = self._data / blob
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)

    def _files(self, blob: str) -> list[Path]:
        """Return the files of a blob, in order."""
        path = self._data / blob
        return sorted(path.iterdir()) if path.is_dir() else [path]

    def _spans(self, blob: str, start: int, end: int) -> list[tuple[Path, int, int]]:
        """Return the file ranges that hold the bytes from *start* to before *end*."""
        found, at = [], 0
        for path in self._files(blob):
            size = path.stat().st_size
            first, last = max(start - at, 0), min(end - at, size)
            if first < last:
                found.append((path, first, last))
            at += size
        return found

    def blobs(self) -> list[str]:
        return [path.name for path in self._data.iterdir()]

    def save(self, kind: str, key: str, record: Record) -> None:
        """Store a record under (*kind*, *key*), replacing the previous one atomically."""
        path = self._record_path(kind, key)
        path.parent.mkdir(parents=True, exist_ok=True)
        half = self._path / "half" / path.name
        half.write_text(json.dumps(record), encoding="utf-8")
        # The rename is the moment of the change: a kill leaves the old record or the new one.
        half.replace(path)

    def forget(self, kind: str, key: str) -> None:
        """Delete a record; an unknown one is no error."""
        self._record_path(kind, key).unlink(missing_ok=True)

    def records(self, kind: str) -> list[Record]:
        """Return every record of *kind*, in no particular order."""
        files = sorted((self._path / kind).glob("*.json"))
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    def _record_path(self, kind: str, key: str) -> Path:
        # A digest, since object names may be longer than a file name and contain any character.
        return self._path / kind / f"{hashlib.sha256(key.encode()).hexdigest()}.json"


Blobs = MemoryBlobs | FolderBlobs
"""A store of growing blobs and small JSON records; a blob exists only while a record names it."""


def pieces(blobs: Blobs, blob: str) -> Iterator[bytes]:
    """Yield a blob in blocks of 1 MiB."""
    size = blobs.size(blob)
    for start in range(0, size, BLOCK):
        yield blobs.read(blob, start, min(start + BLOCK, size))
