"""
Transfer large files between disk and bucket in parts, several at a time, with bounded memory.

Protocol: Cloud Storage JSON API, ranged reads of one generation, and `compose` (docs/facts.md 3.1).
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import os
import threading
import time
import uuid
from collections import deque
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Callable, Deque, Dict, Generator, List, Optional, Protocol, Sequence, Tuple, TypeVar

from orchestrator.agent.cloud.transport import Reply, seconds_of
from orchestrator.contract.machine_errors import AgentError, DamagedError, PreconditionError, TransientError

SMALLEST_PART, MAX_PART = 8 << 20, 32 << 20
MAX_STREAMS = 16
AHEAD = 2
"""Parts in memory besides those being transferred: one is read or hashed while others are sent."""
SOURCES = 32
"""Maximum number of source objects of one compose (docs/facts.md 3.1)."""
PARTS = ".tpuctl-parts/"
"""Infix between the name of a file and the names of its upload's parts."""
REPLACED = 3
"""Times that a download restarts because the object was replaced meanwhile."""
POLYNOMIAL = 0x82F63B78
"""The polynomial of CRC-32C, lowest power first."""

PART_TIMEOUT, CLEAN_UP_TIMEOUT = 90.0, 10.0
"""Seconds to try one part, and one step of the clean-up."""
ABANDONED = 24 * 3600.0
"""Age in seconds at which parts of another upload are deleted: no upload takes a day."""

T = TypeVar("T")


def part_size(size: int) -> int:
    """Return the part size in bytes for a file of *size* bytes; larger files have larger parts."""
    return min(MAX_PART, max(SMALLEST_PART, -(-size // SOURCES)))


class Streams:
    """Runs transfers of parts, at most *most* at a time for all files together, in threads made on demand."""

    def __init__(self, most: int = 0) -> None:
        self._most = most or min(MAX_STREAMS, max(4, os.cpu_count() or 1))
        self._room = threading.BoundedSemaphore(self._most + AHEAD)
        self._queue: SimpleQueue[Tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._lock = threading.Lock()
        self._threads = 0

    def in_order(self, count: int, prepared: Callable[[int], Callable[[], T]]) -> Generator[T, None, None]:
        """
        Yield the results of the calls that *prepared* returns for 0 to *count* - 1, in order.

        Raise what a call raises. A call is prepared when there is room for its part, which is released when
        the next result is requested. If the generator ends early, started calls are waited for.
        """
        waiting: Deque[Future[T]] = deque()
        try:
            for number in range(count):
                # A caller with a part in progress first yields it before waiting for room, which
                # prevents a deadlock.
                while not self._room.acquire(blocking=not waiting):
                    yield waiting[0].result()
                    self._let_out(waiting)
                try:
                    call = prepared(number)
                except BaseException:
                    self._room.release()
                    raise
                waiting.append(self._begin(call))
                # Otherwise this frame would keep the part in memory.
                del call
            while waiting:
                yield waiting[0].result()
                self._let_out(waiting)
        finally:
            for future in waiting:
                future.cancel()
            while waiting:
                with contextlib.suppress(BaseException):
                    waiting[0].result()
                self._let_out(waiting)

    def _let_out(self, waiting: Deque[Future[T]]) -> None:
        waiting.popleft()
        self._room.release()

    def _begin(self, call: Callable[[], T]) -> Future[T]:
        future: Future[T] = Future()
        self._queue.put((future, call))
        with self._lock:
            if self._threads < self._most:
                self._threads += 1
                # Daemon threads: a notice leaves no time to finish transfers when the process ends.
                threading.Thread(target=self._work, name="stream", daemon=True).start()
        return future

    def _work(self) -> None:
        while True:
            future, call = self._queue.get()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(call())
                except BaseException as error:
                    future.set_exception(error)
            # Otherwise the part would stay in memory until the next call.
            del future, call


class ReplacedError(AgentError):
    """The generation being read does not exist any more."""


class BucketCalls(Protocol):
    """The calls to a bucket that transfers need; each retries within its time."""

    def stat(self, name: str) -> Optional[Dict[str, Any]]:
        """Return the object's resource, None if it does not exist."""

    def read_range(self, name: str, generation: str, start: int, end: int, size: int) -> bytes:
        """Return bytes of one generation of an object of *size* bytes. Raise ReplacedError if it is gone."""

    def insert(self, name: str, data: bytes, if_generation: Optional[int], timeout: float) -> Dict[str, Any]:
        """Write an object, verify the bucket's checksum, and return its resource."""

    def compose(self, name: str, body: Dict[str, Any], if_generation: int) -> Optional[Dict[str, Any]]:
        """Join objects and return the result's resource; None if a source is missing."""

    def objects(self, prefix: str, timeout: float) -> List[Dict[str, Any]]:
        """Return the resources of all objects under *prefix*."""

    def delete(self, name: str, if_generation: Optional[int], timeout: float) -> None:
        """Delete an object; a missing one is no error."""


def download(
    bucket: BucketCalls, streams: Streams, name: str, path: Path, size: int, kind: str, *, durable: bool
) -> str:
    """
    Download an object of *size* bytes to a file; return its digest, of hashlib's kind *kind*.

    All bytes are of one generation; if the object is replaced meanwhile, the download restarts. Raise
    DamagedError if it does not exist or has another size.
    """
    for _ in range(REPLACED):
        held = bucket.stat(name)
        if held is None:
            raise DamagedError(f"{name} is not there")
        if int(held["size"]) != size:
            raise DamagedError(f"{name} has {held['size']} bytes, not {size}")
        try:
            generation = str(held["generation"])
            return _of_generation(bucket, streams, name, generation, path, size, kind, durable=durable)
        except ReplacedError:
            continue
    raise DamagedError(f"{name} changes faster than it can be read")


def _of_generation(
    bucket: BucketCalls,
    streams: Streams,
    name: str,
    generation: str,
    path: Path,
    size: int,
    kind: str,
    *,
    durable: bool,
) -> str:
    digest, part = hashlib.new(kind), part_size(size)
    with path.open("wb") as file:

        def prepared(number: int) -> Callable[[], bytes]:
            start = number * part

            def read() -> bytes:
                data = bucket.read_range(name, generation, start, min(start + part, size), size)
                _write_at(file.fileno(), data, start)
                return data

            return read

        # Ended before the file is closed: a late write must not go to a reused file descriptor.
        with contextlib.closing(streams.in_order(-(-size // part), prepared)) as parts:
            for data in parts:
                digest.update(data)
        if durable:
            # The caller renames the file; without fsync the name could survive a power loss and the bytes not.
            os.fsync(file.fileno())
    return digest.hexdigest()


def check_range(reply: Reply, generation: str, start: int, end: int, size: int) -> None:
    """Raise ReplacedError or TransientError unless the answer has exactly these bytes of this generation."""
    if reply.status == 404 or reply.headers.get("x-goog-generation", generation) != generation:
        raise ReplacedError(f"generation {generation} is gone")
    shown = reply.headers.get("content-range", "")
    if reply.status != 206 or shown != f"bytes {start}-{end - 1}/{size}":
        raise TransientError(f"a range was requested, and the answer is {reply.status} {shown}")
    if len(reply.body) != end - start:
        raise TransientError(f"{len(reply.body)} of the {end - start} bytes of a range came")


def _write_at(file: int, data: bytes, start: int) -> None:
    view, at = memoryview(data), start
    while at < start + len(data):
        at += os.pwrite(file, view[at - start :], at)


@dataclass(frozen=True)
class UploadPart:
    """An uploaded part; *crc* is the bucket's CRC-32C of it, None if the bucket shows none."""

    name: str
    generation: str
    size: int
    crc: Optional[int]

    @classmethod
    def of(cls, name: str, resource: Dict[str, Any]) -> UploadPart:
        """Parse the part's resource."""
        shown = resource.get("crc32c")
        crc = int.from_bytes(base64.b64decode(shown), "big") if shown else None
        return cls(name, str(resource["generation"]), int(resource["size"]), crc)


def upload(bucket: BucketCalls, streams: Streams, name: str, path: Path, size: int) -> str:
    """
    Upload a file in parts, let the bucket join them, and return the sha256 of what was sent.

    The object appears whole or not at all. A killed process leaves parts, which are ignored: a later upload
    of that name deletes them, and so does whatever deletes the object's folder.
    """
    # A unique folder, so that another process's parts are never taken for ours.
    mine = f"{name}{PARTS}{uuid.uuid4().hex[:12]}/"
    held = bucket.stat(name)
    before = int(held["generation"]) if held is not None else 0
    try:
        parts, digest = _send(bucket, streams, mine, path, size)
        level = 0
        while len(parts) > SOURCES:
            level += 1
            parts = _joined(bucket, streams, f"{mine}{level}-", parts)
        _join(bucket, name, parts, before)
    finally:
        # The bucket deletes the parts that it joins; this deletes the rest.
        with contextlib.suppress(AgentError):
            _delete_parts(bucket, f"{name}{PARTS}", mine)
    return digest


def _send(
    bucket: BucketCalls, streams: Streams, mine: str, path: Path, size: int
) -> Tuple[List[UploadPart], str]:
    digest, part = hashlib.sha256(), part_size(size)
    with path.open("rb") as file:

        def prepared(number: int) -> Callable[[], UploadPart]:
            # Read once, so that the hashed bytes are the sent ones even if the file changes.
            wanted = min(part, size - number * part)
            data = file.read(wanted)
            if len(data) != wanted:
                raise DamagedError(f"{path} changed while it was read")
            digest.update(data)
            name = f"{mine}{number:06d}"
            return lambda: UploadPart.of(name, bucket.insert(name, data, None, PART_TIMEOUT))

        return list(streams.in_order(-(-size // part), prepared)), digest.hexdigest()


def _joined(bucket: BucketCalls, streams: Streams, start: str, parts: List[UploadPart]) -> List[UploadPart]:
    """Join the parts in groups as large as one call allows."""

    def prepared(number: int) -> Callable[[], UploadPart]:
        group = parts[number * SOURCES : (number + 1) * SOURCES]
        return lambda: _join(bucket, f"{start}{number:06d}", group, 0)

    return list(streams.in_order(-(-len(parts) // SOURCES), prepared))


def _join(bucket: BucketCalls, name: str, parts: List[UploadPart], before: int) -> UploadPart:
    """Compose an object whose generation was *before*; a repeated call may find its own result."""
    sources = [{"name": one.name, "generation": one.generation} for one in parts]
    # The same call deletes the parts, so that a kill after it leaves none.
    body = {"sourceObjects": sources, "destination": {}, "deleteSourceObjects": True}
    refused: AgentError = TransientError(f"{name}: a part of it is gone")
    try:
        made = bucket.compose(name, body, before)
    except PreconditionError as error:
        made, refused = None, error
    found = made or bucket.stat(name)
    size, crc = sum(one.size for one in parts), joined_crc(parts)
    if found is not None:
        one = UploadPart.of(name, found)
        # Composed objects have no md5; if the bucket shows no checksums at all, compare the size.
        if one.size == size and (one.crc == crc or (made and None in (crc, one.crc))):
            return one
    if made is None:
        raise refused
    raise DamagedError(f"{name}: the bucket has joined other bytes than were sent")


def _delete_parts(bucket: BucketCalls, prefix: str, mine: str) -> None:
    """Delete our parts, and those of uploads that are too old to be in progress."""
    for item in bucket.objects(prefix, CLEAN_UP_TIMEOUT):
        if item["name"].startswith(mine) or time.time() - seconds_of(item["updated"]) > ABANDONED:
            bucket.delete(item["name"], int(item["generation"]), CLEAN_UP_TIMEOUT)


def joined_crc(parts: Sequence[UploadPart]) -> Optional[int]:
    """Return the CRC-32C of all parts joined, None if that of one is unknown."""
    total = 0
    for one in parts:
        if one.crc is None:
            return None
        total = _times(_power_of_x(8 * one.size), total) ^ one.crc
    return total


def _times(one: int, other: int) -> int:
    """Multiply two polynomials over GF(2) modulo CRC-32C's; the lowest power is the highest bit."""
    product = 0
    for bit in range(31, -1, -1):
        if one >> bit & 1:
            product ^= other
        other = (other >> 1) ^ (POLYNOMIAL if other & 1 else 0)
    return product


def _power_of_x(exponent: int) -> int:
    power, square = 1 << 31, 1 << 30
    while exponent:
        if exponent & 1:
            power = _times(power, square)
        square = _times(square, square)
        exponent >>= 1
    return power
