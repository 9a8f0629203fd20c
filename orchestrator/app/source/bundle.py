"""Pack the source folder into one tar.gz whose bytes depend on its content only; its sha256 names it."""

import gzip
import hashlib
import io
import json
import os
import tarfile
import tempfile
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from orchestrator.app.source.source_files import MAX_BYTES, KeyFound, SourceEntry, key_refusal, sent_files
from orchestrator.contract.replacing import replacing
from orchestrator.domain.source.key_files import SMALL, keys_in
from orchestrator.errors import UsageError
from orchestrator.private_folders import private_folder

_CACHE = "bundle.json"
_KEEP = 3
_LEVEL = 1
_BLOCK, _WAITING = 1 << 18, 8
"""Bytes compressed at a time, and the number of such blocks that may wait for the compressor."""
# A file changed this shortly before it was read may change again within one tick of its time stamp.
_SETTLED = 2.0


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk: *files* counts files and symlinks, *bytes* is their size before compression."""

    path: Path
    digest: str
    files: int
    bytes: int


def build(
    source: Path,
    out_dir: Path,
    limit: int = MAX_BYTES,
    more: Mapping[str, bytes] | None = None,
    written: Sequence[str] = (),
) -> Bundle:
    """
    Pack *source* into `out_dir/<sha256>.tar.gz`; reuse the last bundle if nothing has changed.

    *more* maps names to the content of files that tpuctl adds. *written* are patterns as in `sent_files`. Raise
    UsageError as `sent_files` does, for a file that changes while it is read, and for a file that holds a key
    unless a `!` pattern of the user includes it.
    """
    started = time.time()
    entries = sent_files(source, limit, written)
    added = dict(sorted((more or {}).items()))
    mark = _source_digest(source, entries, added)
    known = _known(out_dir, mark)
    digest = known or _pack(source.resolve(), entries, out_dir, added)
    newest = max((entry.stamp[2] for entry in entries), default=0) / 1e9
    if not known and newest < started - _SETTLED:
        path = out_dir / f"{digest}.tar.gz"
        known_as = {"mark": mark, "digest": digest, "size": path.stat().st_size}
        with replacing(out_dir / _CACHE, 0o600) as file:
            file.write(json.dumps(known_as).encode())
    return Bundle(
        out_dir / f"{digest}.tar.gz",
        digest,
        sum(1 for entry in entries if entry.stamp[0]),
        sum(entry.size for entry in entries),
    )


class _Behind(io.RawIOBase):
    """Pass written data on in blocks to a second thread, so that reading and compressing overlap."""

    def __init__(self, write: Callable[[bytes], object]) -> None:
        self._write = write
        self._pool = ThreadPoolExecutor(1, "compress")
        self._under_way: deque[Future[object]] = deque()
        self._block = bytearray()
        self._size = 0

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: object) -> int:
        before = len(self._block)
        self._block += bytes(data)  # type: ignore[call-overload]
        added = len(self._block) - before
        self._size += added
        if len(self._block) >= _BLOCK:
            self._submit_block(_WAITING)
        return added

    def _submit_block(self, most: int) -> None:
        """Queue the current block and wait until at most *most* are pending. Raise what a write raised."""
        self._under_way.append(self._pool.submit(self._write, bytes(self._block)))
        self._block.clear()
        while len(self._under_way) > most:
            self._under_way.popleft().result()

    def close(self) -> None:
        """Wait until every block is written. Raise what a write raised."""
        try:
            if not self.closed:
                self._submit_block(0)
        finally:
            self._pool.shutdown()
            super().close()


class _Hashing(io.RawIOBase):
    """Write to a file and compute its sha256 on the way."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.sha256 = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, data: object) -> int:
        piece = bytes(data)  # type: ignore[call-overload]
        self.sha256.update(piece)
        return self._file.write(piece)


def _pack(root: Path, entries: Sequence[SourceEntry], out_dir: Path, more: Mapping[str, bytes]) -> str:
    """Write the bundle atomically and return its sha256 in hex. Raise UsageError for changed files and keys."""
    private_folder(out_dir)
    keys: list[KeyFound] = []
    descriptor, temporary = tempfile.mkstemp(prefix=".bundle-", dir=out_dir)
    try:
        with os.fdopen(descriptor, "wb") as file:
            hashing = _Hashing(file)
            with (
                gzip.GzipFile("", "wb", _LEVEL, hashing, mtime=0) as packed,
                _Behind(packed.write) as behind,
                tarfile.open(fileobj=behind, mode="w", format=tarfile.GNU_FORMAT) as tar,
            ):
                for entry in entries:
                    keys += _add(tar, root, entry)
                for name, data in more.items():
                    info = tarfile.TarInfo(name)
                    info.mode, info.size = 0o644, len(data)
                    tar.addfile(info, io.BytesIO(data))
        if keys:
            raise key_refusal(keys)
        digest = hashing.sha256.hexdigest()
        # After the search for keys, so that a bundle with a key never gets its name.
        Path(temporary).replace(out_dir / f"{digest}.tar.gz")
    finally:
        Path(temporary).unlink(missing_ok=True)
    _prune(out_dir)
    return digest


def _add(tar: tarfile.TarFile, root: Path, entry: SourceEntry) -> list[KeyFound]:
    """Add one entry without owner or time; return the key found in it, if no `!` pattern includes the file."""
    info, found = tarfile.TarInfo(entry.path), list[str]()
    info.mode = entry.mode & 0o777
    if entry.link:
        info.type, info.linkname = tarfile.SYMTYPE, entry.link
        tar.addfile(info)
    elif not entry.stamp[0]:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    else:
        info.size = entry.size
        try:
            with (root / entry.path).open("rb", buffering=0) as file:
                if entry.size <= SMALL:
                    # One read serves both the search for keys and the archive, so both see the same bytes.
                    data = file.read(entry.size)
                    found = [] if entry.allowed else keys_in(data)[:1]
                    tar.addfile(info, io.BytesIO(data))
                else:
                    tar.addfile(info, file)
                grown = bool(file.read(1))
        except OSError as error:
            raise _changing(root, entry, error.strerror or "it is shorter than before") from error
        if grown:
            raise _changing(root, entry, "it is longer than before")
    return [KeyFound(entry.path, kind) for kind in found]


def _changing(root: Path, entry: SourceEntry, message: str) -> UsageError:
    return UsageError(
        f"{entry.path} in {root} changed while it was read: {message}",
        changed="nothing was sent",
        hint="run the command again, or name a file that is always written in .tpuctlignore",
    )


def _source_digest(source: Path, entries: Sequence[SourceEntry], more: Mapping[str, bytes]) -> str:
    sent = [(e.path, e.mode, e.size, e.link, e.stamp) for e in entries]
    text = repr([str(source.resolve()), _LEVEL, sent, *([more] if more else [])])
    return hashlib.sha256(text.encode(errors="surrogateescape")).hexdigest()


def _known(out_dir: Path, mark: str) -> str:
    """Return the digest of the bundle that was built for these files, else ""."""
    try:
        found = json.loads((out_dir / _CACHE).read_text())
        digest = str(found["digest"])
        whole = (out_dir / f"{digest}.tar.gz").stat().st_size == found["size"]
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return digest if whole and found["mark"] == mark else ""


def _prune(out_dir: Path) -> None:
    """Delete all but the newest bundles of this computer; older ones are in the bucket."""
    old = sorted(out_dir.glob("*.tar.gz"), key=lambda path: path.stat().st_mtime_ns)[:-_KEEP]
    for path in old:
        path.unlink(missing_ok=True)
